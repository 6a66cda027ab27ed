import { connect, createServer, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import type { ExecutionContext } from 'ava';

/** The system variables that the server shows on the connection with this number, counted from 0. */
export type Variables = (connection: number) => Readonly<Record<string, string>>;

/**
 * A proxy in front of the MySQL server of `url`, which shows other system variables, because there are servers that a test
 * cannot run. Resolves to the address behind the proxy. It is stopped when the test ends.
 */
export function withVariables(
  t: Pick<ExecutionContext, 'teardown'>,
  url: string,
  variables: Variables,
): Promise<string> {
  return withPackets(t, url, (packet, connection) => showVariables(packet, variables(connection)));
}

/** A server that another one replaces, as in a switchover: it stays up, takes no more writes, and gets no new connections. */
export interface Replaced {
  url: string;
  /** From now on, transactions on the connections that are open now are read-only; with `later`, those on later ones, too. */
  replace: (later?: boolean) => void;
  /** How many packets came on such connections since the last replacement, and how many connections were made in all. */
  readonly late: number;
  readonly connections: number;
}

/** A proxy in front of the MySQL server of `url`. It is stopped when the test ends. */
export async function replaceable(t: Pick<ExecutionContext, 'teardown'>, url: string): Promise<Replaced> {
  let [connections, replaced, late] = [0, 0, 0];
  const address = await withPackets(t, url, (packet, connection) => {
    connections = Math.max(connections, connection + 1);
    if (connection >= replaced || packet[4] === quit) return packet;
    late += 1;
    return queryOf(packet) === 'START TRANSACTION;' ? withQuery(packet, 'START TRANSACTION READ ONLY') : packet;
  });
  return {
    url: address,
    replace: (later = false) => {
      [replaced, late] = [later ? Infinity : connections, 0];
    },
    get late() {
      return late;
    },
    get connections() {
      return connections;
    },
  };
}

/** A proxy that changes what clients send. Connections have numbers, counted from 0. */
async function withPackets(
  t: Pick<ExecutionContext, 'teardown'>,
  url: string,
  change: (packet: Buffer, connection: number) => Buffer,
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
    client.on('data', (bytes) => upstream.write(change(bytes, number)));
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

/** The first byte of a command that ends a connection, or has a text. */
const [quit, query] = [1, 3];

/** A query is one packet: three bytes of length, a number, the command, and the text. */
function queryOf(packet: Buffer): string | undefined {
  return packet[4] === query ? packet.subarray(5).toString() : undefined;
}

function withQuery(packet: Buffer, text: string): Buffer {
  const head = Buffer.from(packet.subarray(0, 5));
  head.writeUIntLE(text.length + 1, 0, 3);
  return Buffer.concat([head, Buffer.from(text)]);
}

function showVariables(packet: Buffer, variables: Readonly<Record<string, string>>): Buffer {
  if (!queryOf(packet)?.startsWith('SHOW VARIABLES')) return packet;
  const rows = Object.entries(variables).map(
    ([name, value]) => `SELECT '${name}' AS Variable_name, '${value}' AS Value`,
  );
  return withQuery(packet, rows.join(' UNION ALL '));
}
