// Loaded into a server's process before it starts (`node --import`). A request for `/livez?provoke=…` loses its handler: its
// answer is not ended, and a promise is rejected that no code catches, before or after the answer's head.
import { subscribe } from 'node:diagnostics_channel';
import type { IncomingMessage, ServerResponse } from 'node:http';

subscribe('http.server.request.start', (message) => {
  const { request, response } = message as { request: IncomingMessage; response: ServerResponse };
  const when = /\?provoke=(before|after)$/.exec(request.url ?? '')?.[1];
  if (when === undefined) return;
  const writeHead = response.writeHead.bind(response) as (...head: unknown[]) => ServerResponse;
  const end = response.end.bind(response);
  response.end = () => {
    response.end = end;
    return response;
  };
  response.writeHead = (...head: unknown[]) => {
    response.writeHead = writeHead;
    if (when === 'after') {
      writeHead(...head);
      response.flushHeaders();
    }
    void Promise.reject(new Error(`provoked ${when} the head`));
    return response;
  };
});
