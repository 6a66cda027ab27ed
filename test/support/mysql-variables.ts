import { connect, createServer, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import type { ExecutionContext } from 'ava';

/** The system variables that the server shows on the connection with this number, counted from 0. */
export type Variables = (connection: number) => Readonly<Record<string, string>>;

/**
 * A proxy in front of the MySQL server of `url`, which shows other system variables, because there are servers that a test
 * cannot run. Resolves to the address behind the proxy. It is stopped when the test ends.
 */
export async function withVariables(
  t: Pick<ExecutionContext, 'teardown'>,
  url: string,
  variables: Variables,
): Promise<string> {
  const { hostname, port } = new URL(url);
  const sockets = new Set<Socket>();
  let connections = 0;
  const server = createServer((client) => {
    const number = connections;
    connections += 1;
    const upstream = connect(Number(port), hostname);
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      from.on('error', () => undefined);
      from.on('close', () => {
        sockets.delete(from);
        to.destroy();
      });
    }
    client.on('data', (bytes) => upstream.write(replaceQuery(bytes, variables(number))));
    upstream.on('data', (bytes) => client.write(bytes));
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  t.teardown(async () => {
    const closed = new Promise((resolve) => server.close(resolve));
    for (const each of sockets) each.destroy();
    await closed;
  });
  const address = new URL(url);
  address.host = `127.0.0.1:${(server.address() as AddressInfo).port}`;
  return address.href;
}

/** A query is one packet: three bytes of length, a number, the command 3, and the text. */
function replaceQuery(packet: Buffer, variables: Readonly<Record<string, string>>): Buffer {
  const at = packet.indexOf('SHOW VARIABLES');
  if (at !== 5 || packet[4] !== 3) return packet;
  const rows = Object.entries(variables).map(
    ([name, value]) => `SELECT '${name}' AS Variable_name, '${value}' AS Value`,
  );
  const text = Buffer.from(rows.join(' UNION ALL '));
  const head = Buffer.from(packet.subarray(0, 5));
  head.writeUIntLE(text.length + 1, 0, 3);
  return Buffer.concat([head, text]);
}
