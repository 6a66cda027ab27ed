import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Server, Socket } from 'node:net';

// Requests that a client sends without waiting for answers (RFC 9112, 9.3.2). Node reads about 2,000 small ones in one turn of the
// event loop, and begins all of them. Here the next one begins when the one before it is answered.

/** Most requests of a connection that wait for the answer to the one before. Clients of this server send none. */
const maxWaiting = 16;

/** How many requests of a connection wait. */
const waiting = new WeakMap<Socket, number>();

type Listener<Response> = (request: IncomingMessage, response: Response) => void;

/** What Node's server reads the requests of a connection with. A result other than 0 ends the reading with an error. */
interface Parser {
  onIncoming?: ((request: IncomingMessage, keepAlive: boolean) => number) | null;
}

/** Passes on each request of a connection when the one before it is answered. */
export function oneAfterAnother<Response extends ServerResponse>(listener: Listener<Response>): Listener<Response> {
  return (request, response) => {
    // Node gives a response its socket when it is its turn.
    if (response.socket !== null) return listener(request, response);
    const { socket } = request;
    waiting.set(socket, (waiting.get(socket) ?? 0) + 1);
    response.once('socket', () => {
      waiting.set(socket, waiting.get(socket)! - 1);
      listener(request, response);
    });
  };
}

/**
 * Closes a connection that sends more than 16 requests without waiting, and reads no more of them. `event` is the one with the
 * sockets that `server` reads requests from. Node has no public way to stop in the middle of what has arrived.
 */
export function limitWaiting(server: Server, event: 'connection' | 'secureConnection'): void {
  server.on(event, (socket: Socket & { parser?: Parser | null }) => {
    const { parser } = socket;
    const begin = parser?.onIncoming;
    if (!parser || !begin) return;
    parser.onIncoming = (request, keepAlive) => {
      if ((waiting.get(socket) ?? 0) < maxWaiting) return begin(request, keepAlive);
      socket.destroy();
      return -1;
    };
  });
}
