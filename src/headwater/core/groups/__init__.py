"""Consumer groups: who works on which message.

A group hands the messages of a stream to its members, each message to one member at a time. Per
group there is a cursor, after which nothing was handed out yet, and a set of *outstanding*
messages before it that are not settled. Whatever lies before the cursor and is not outstanding is
done. That is the whole state, and all of it that matters is stored.

An outstanding message is

- **leased**: a member has it until the lease runs out. Each delivery has a receipt of its own; a
  receipt of an earlier delivery is stale and changes nothing;
- **waiting**: it may be delivered from a certain moment on, which is in the future after a nack
  with a delay. A message that waits holds up no other;
- **blocked**: in a group that keeps order by key, an earlier message with the same key is not
  settled yet;
- **given up**: a member rejected it, or it was returned after as many deliveries as the group
  allows. It goes to the dead-letter stream, and leaves the group in the same transaction.

A message leaves by being acknowledged, or by being given up.

A member that asks for messages may say in the same request what it is done with. That comes first:
it makes room, and what waited for its key may be handed out. It holds whatever becomes of the rest,
and is committed at once, not when messages come.

Everything here is decided, then evolved: `decisions` looks at a state and returns the mutations to
store, `evolve` folds them into the state, and engines store the same ones.

config      the settings of a group, and how they change
state       what a group is at any moment
mutations   what changes about it, and `evolve`
commands    what members say about the messages they have
decisions   what follows from a command, from the clock, and from members that come and go
turns       who gets the next message
keys        what a message is ordered by
"""
