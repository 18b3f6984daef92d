"""Consumer groups: who works on which message.

A group delivers the messages of a stream to its members, each message to one member at a time. It
has a cursor, after which nothing has been delivered yet, and a set of *outstanding* messages before
it that are not settled. Everything before the cursor that is not outstanding is done. That is the
whole state, and all of it that matters is stored.

An outstanding message is

- **leased**: a member has it until the lease ends. Each delivery has its own receipt; the receipt
  of an earlier delivery is stale and changes nothing;
- **waiting**: it may be delivered from a certain time on, which is in the future after a nack with
  a delay. A waiting message does not hold up others;
- **blocked**: in a group that keeps order by key, an earlier message with the same key is not
  settled yet;
- **given up**: a member rejected it, or it was returned after as many deliveries as the group
  allows. It moves to the dead-letter stream, and leaves the group in the same transaction.

A message leaves the group when it is acknowledged or given up.

A member may settle messages in the same request that asks for new ones. That is processed first: it
makes room, and unblocks messages with the same key. It takes effect whatever happens to the rest,
and is committed at once, without waiting for new messages.

Everything here is decided, then evolved: `decisions` looks at a state and returns the mutations to
store, `evolve` folds them into the state, and engines store the same ones.

config      the settings of a group, and how they change
state       what a group is at any moment
mutations   what changes about it, and `evolve`
commands    what members say about the messages they have
decisions   what follows from a command, from the clock, and from members that come and go
turns       who gets the next message
unstored    deliveries that wait before they are stored
keys        what a message is ordered by
"""
