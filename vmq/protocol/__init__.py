"""What each packet of a client does: connections and sessions, CONNECT, PUBLISH, SUBSCRIBE, wills and rights."""
