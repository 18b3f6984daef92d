"""Subscriptions: a worker is woken when streams have something new.

A subscription links any number of streams, named one by one (*explicit*) or by a pattern (*glob*).
For each link it remembers the last acknowledged offset. A stream is *pending* when it has something
after that offset. Streams that exist when they are linked begin at their tail; later ones begin at
their beginning.

While something is pending and nobody is working on it, there is a **wake**. Wakes are numbered:
each raises the *generation* by one and has a random id. There is at most one at a time. It is

- **due**: it has to be announced, by a request to a webhook or by an event in the wake stream. A
  failure is retried after 1 s, then 2 s, 4 s, … up to 60 s, each up to 20 % sooner or later,
  without an end;
- **offered**: the event is in the wake stream and no worker has claimed the wake yet;
- **leased**: a worker has it. The lease ends some time after the last sign of life, which is the
  webhook's answer, the claim, or an acknowledgement.

A wake ends when its holder reports that it is done, gives it back, or lets the lease end. If
something is still pending then, the next wake begins immediately.

The holder of a wake authenticates with a token that is bound to the subscription and to the
generation. Once a wake is over, its token, its generation and its id are *fenced*: they no longer
have any effect.

An acknowledgement names the last processed offset. It must be a position of the current stream, not
beyond its tail and not before what was already acknowledged. Several sent together all count, or
none does.
"""
