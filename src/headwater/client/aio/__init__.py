"""The asyncio client: IO around `headwater.client.protocol.streams`."""
