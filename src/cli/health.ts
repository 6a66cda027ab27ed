import { Agent as HttpAgent, request as requestHttp, type IncomingMessage } from 'node:http';
import { Agent as HttpsAgent, request as requestHttps } from 'node:https';
import type { Command } from 'commander';
import { adminHostOf } from '../server/admin-host.ts';
import { loadConfig, type Environment } from '../config/load.ts';
import type { Config } from '../config/schema.ts';
import { authorityOf } from '../runtime/authority.ts';
import { DomainError } from '../runtime/errors.ts';
import type { Terminal } from './with-installation.ts';

/** Milliseconds until the answer. */
const answerTime = 4000;
/** The most characters of an answer that are shown. */
const maxAnswer = 1000;

/** `entrepot health` */
export function addHealth(program: Command, environment: Environment, terminal: Terminal): void {
  program
    .command('health')
    .description('ask the server of these settings on this machine whether it is ready; fails if not')
    .action(async () => {
      const address = addressOf(loadConfig(environment).server);
      const { status, text } = await ask(address).catch((error: NodeJS.ErrnoException) => {
        throw new DomainError('NotFound', `no server answers at ${address.origin}: ${error.message || error.code}`);
      });
      if (status !== 200) throw new DomainError('NotFound', `the server at ${address.origin} is not ready: ${text}`);
      terminal.stdout.write(`${text}\n`);
    });
}

/** The address of `/readyz` on this machine. */
function addressOf(server: Config['server']): URL {
  const { adminPort, tls } = server;
  const port = adminPort ?? server.port;
  if (port === 0)
    throw new DomainError(
      'Invalid',
      `${adminPort === 0 ? 'ENTREPOT_ADMIN_PORT' : 'ENTREPOT_PORT'} is 0, so the port of the server is not known`,
    );
  const host = adminPort === undefined ? server.host : adminHostOf(server);
  const scheme = tls.certFile !== undefined && adminPort === undefined ? 'https' : 'http';
  const reached = { '0.0.0.0': '127.0.0.1', '::': 'localhost' }[host] ?? host;
  return new URL(`${scheme}://${authorityOf(reached, port)}/readyz`);
}

async function ask(address: URL): Promise<{ status: number; text: string }> {
  const options = { signal: AbortSignal.timeout(answerTime) };
  const answer = Promise.withResolvers<IncomingMessage>();
  // The certificate has the public names of the server, so its name is not checked. Agents of its own use no proxy.
  const asked =
    address.protocol === 'https:'
      ? requestHttps(address, { ...options, agent: new HttpsAgent(), rejectUnauthorized: false }, answer.resolve)
      : requestHttp(address, { ...options, agent: new HttpAgent() }, answer.resolve);
  asked.on('error', answer.reject).end();
  const response = await answer.promise;
  let text = '';
  for await (const chunk of response) text = (text + String(chunk)).slice(0, maxAnswer);
  return { status: response.statusCode!, text };
}
