import { once } from 'node:events';
import { rename, writeFile } from 'node:fs/promises';
import type { IncomingMessage } from 'node:http';
import { Agent, request } from 'node:https';
import { join } from 'node:path';
import { connect, type ConnectionOptions, type TLSSocket } from 'node:tls';
import { text } from 'node:stream/consumers';
import type { ExecutionContext } from 'ava';
import { createAuthority, type TestAuthority } from './builders/certificates.ts';
import { folderUntilEnd } from './folder.ts';
import { startTestServer, type TestServer } from './server.ts';

/** Files of a certificate for 127.0.0.1 that a test can replace. */
export interface TestPair {
  authority: TestAuthority;
  /** The settings `server.tls`. */
  tls: { certFile: string; keyFile: string };
  cert: string;
  key: string;
  /** Replaces the files, each at once. */
  replace(pair: { cert?: string; key?: string }): Promise<void>;
}

export async function createPair(t: Pick<ExecutionContext, 'teardown'>): Promise<TestPair> {
  const folder = await folderUntilEnd(t);
  const authority = createAuthority();
  const tls = { certFile: join(folder, 'server.crt'), keyFile: join(folder, 'server.key') };
  const issued = authority.issue('127.0.0.1', 'localhost');
  const replace: TestPair['replace'] = async ({ cert, key }) => {
    for (const [path, content] of [
      [tls.keyFile, key],
      [tls.certFile, cert],
    ] as const) {
      if (content === undefined) continue;
      await writeFile(`${path}.new`, content);
      await rename(`${path}.new`, path);
    }
  };
  await replace(issued);
  return { authority, tls, ...issued, replace };
}

/** A whole server with TLS. `settings.server` is merged. */
export async function startTlsServer(
  t: Pick<ExecutionContext, 'teardown'>,
  settings: Record<string, unknown> = {},
): Promise<{ server: TestServer; pair: TestPair }> {
  const pair = await createPair(t);
  const own = { ...(settings['server'] as object | undefined), tls: pair.tls };
  return { server: await startTestServer(t, { ...settings, server: own }), pair };
}

/** An established TLS connection that trusts only the authority of `pair`. */
export async function connectTls(url: string, pair: TestPair, options: ConnectionOptions = {}): Promise<TLSSocket> {
  const socket = connect({ host: '127.0.0.1', port: Number(new URL(url).port), ca: pair.authority.ca, ...options });
  await once(socket, 'secureConnect');
  return socket;
}

export interface TlsAnswer {
  status: number;
  headers: IncomingMessage['headers'];
  body: string;
}

/** A request on a connection of its own. */
export async function askTls(
  { url, token }: Pick<TestServer, 'url' | 'token'>,
  { authority: { ca } }: TestPair,
  path: string,
  { method = 'GET', headers = {}, body }: { method?: string; headers?: Record<string, string>; body?: Buffer } = {},
): Promise<TlsAnswer> {
  const agent = new Agent({ ca, keepAlive: false });
  const sent = request(url + path, { agent, method, headers: { authorization: `Bearer ${token}`, ...headers } });
  const [answer] = (await once(sent.end(body), 'response')) as [IncomingMessage];
  return { status: answer.statusCode!, headers: answer.headers, body: await text(answer) };
}
