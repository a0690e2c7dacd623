"""Where connections come from: TCP, TLS, WebSocket, Unix sockets, with and without a proxy in front."""
