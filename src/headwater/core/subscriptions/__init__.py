"""Subscriptions: someone is woken when streams have something new.

A subscription links any number of streams, named one by one (*explicit*) or by a pattern (*glob*).
Per link it remembers the last offset that was acknowledged. A stream is *pending* when it holds
something after that offset. Streams that were there when they were linked begin at their tail;
streams that come later begin at their beginning.

While something is pending and nobody is at work, there is a **wake**. Wakes are numbered: the
*generation* grows by one with each, and each has a random id. There is at most one at a time. It is

- **due**: it has to be announced, by a request to a webhook or by an event in the wake stream.
  What fails is tried again after 1 s, then 2 s, 4 s, … up to 60 s, each up to 20 % sooner or
  later. That goes on for as long as it takes;
- **offered**: the event is in the wake stream and no worker has claimed the wake yet;
- **leased**: someone is at work. The lease ends some time after the last sign of life, which is
  the webhook's answer, the claim, or an acknowledgement.

A wake ends when whoever holds it says that it is done, gives it back, or lets the lease run out.
If something is still pending then, the next wake begins in the same moment.

Whoever works on a wake proves it with a token that is bound to the subscription and to the
generation. Once a wake is over, its token, its generation and its id are *fenced*: they move
nothing any more.

An acknowledgement names the last offset that was processed. It must be a position of the stream as
it is now, not beyond its tail and not before what was acknowledged already. Several come together,
and either all of them count or none does.
"""
