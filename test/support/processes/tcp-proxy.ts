import { connect, createServer, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import type { ExecutionContext } from 'ava';

/** A proxy in front of a shared database or Redis, which a test can stop and freeze without harm for other tests. */
export interface TcpProxy {
  port: number;
  /** The same address behind the proxy. */
  through(url: string): string;
  /** From now on, connections are accepted and no byte is passed on, as with a stopped process. */
  freeze(): void;
  /** From now on, every piece arrives this many milliseconds later. */
  slow(milliseconds: number): void;
  /** Closes all connections and accepts no more. */
  stop(): Promise<void>;
}

/** Starts a proxy in front of the server of `url`. It is stopped when the test ends. */
export async function tcpProxy(t: Pick<ExecutionContext, 'teardown'>, url: string): Promise<TcpProxy> {
  const { hostname, port } = new URL(url);
  const sockets = new Set<Socket>();
  let isFrozen = false;
  let delay = 0;
  const server = createServer((client) => {
    const upstream = connect(Number(port), hostname);
    for (const [from, to] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      sockets.add(from);
      from.on('error', () => undefined);
      from.on('data', (bytes) => {
        if (isFrozen) return;
        if (delay === 0) to.write(bytes);
        else setTimeout(() => to.write(bytes), delay);
      });
      from.on('close', () => {
        sockets.delete(from);
        if (!isFrozen) to.destroy();
      });
    }
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const { port: own } = server.address() as AddressInfo;
  const stop = async () => {
    const closed = new Promise((resolve) => server.close(resolve));
    for (const each of sockets) each.destroy();
    await closed;
  };
  t.teardown(stop);
  return {
    port: own,
    through: (address) => {
      const changed = new URL(address);
      changed.host = `127.0.0.1:${own}`;
      return changed.href;
    },
    freeze: () => {
      isFrozen = true;
    },
    slow: (milliseconds) => {
      delay = milliseconds;
    },
    stop,
  };
}
