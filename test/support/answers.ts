import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ExecutionContext } from 'ava';
import { AppResponse } from '../../src/http/request-context.ts';
import { Sending } from '../../src/http/sending.ts';

/**
 * Answers requests as the product does, without its routes: `answer` gets each request. Resolves to a port of 127.0.0.1, which is free
 * again after the test.
 */
export async function answerRequests(
  t: Pick<ExecutionContext, 'teardown'>,
  answer: (request: IncomingMessage, response: AppResponse) => unknown,
  sending = new Sending(),
): Promise<number> {
  const server = createServer({ ServerResponse: AppResponse }, (request, response) => {
    response.sending = sending;
    void answer(request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(async () => {
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  });
  return (server.address() as AddressInfo).port;
}
