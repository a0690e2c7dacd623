"""Where connections come from: TCP and WebSocket."""
