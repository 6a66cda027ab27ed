import { once } from 'node:events';
import { request, type IncomingHttpHeaders, type IncomingMessage } from 'node:http';
import { buffer } from 'node:stream/consumers';
import type { TestServer } from './server.ts';

export interface Raw {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** Sends the target unchanged, where fetch would resolve dots, and returns the body as sent, still compressed. */
export async function raw(
  { url, token }: Pick<TestServer, 'url' | 'token'>,
  path: string,
  { method = 'GET', headers = {} }: { method?: string; headers?: Record<string, string> } = {},
): Promise<Raw> {
  const { hostname, port } = new URL(url);
  const asked = request({ hostname, port, path, method, headers: { authorization: `Bearer ${token}`, ...headers } });
  const [response] = (await once(asked.end(), 'response')) as [IncomingMessage];
  return { status: response.statusCode!, headers: response.headers, body: await buffer(response) };
}
