import { request, type IncomingHttpHeaders } from 'node:http';
import type { TestServer } from './server.ts';

export interface Raw {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** Asks with the target as it is, where fetch would resolve dots, and gets what came over the wire, before it is decoded. */
export async function raw(
  { url, token }: Pick<TestServer, 'url' | 'token'>,
  path: string,
  { method = 'GET', headers = {} }: { method?: string; headers?: Record<string, string> } = {},
): Promise<Raw> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const asked = request({ hostname, port, path, method, headers: { authorization: `Bearer ${token}`, ...headers } });
    asked.on('error', reject).on('response', (response) => {
      const pieces: Buffer[] = [];
      response.on('data', (piece: Buffer) => pieces.push(piece));
      response.on('end', () =>
        resolve({ status: response.statusCode!, headers: response.headers, body: Buffer.concat(pieces) }),
      );
    });
    asked.end();
  });
}
