// Loaded into the process of a server before it starts (`node --import`). A request for `/livez?provoke=…` gets no handler:
// its response does not end, and a promise is rejected without a catch, before or after the headers of the response.
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
