def document() -> bytes:
    return b"{}"
