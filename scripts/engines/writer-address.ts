import { connect, createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

/** Milliseconds between two checks of the writer. */
const checkInterval = 500;

/**
 * One address that leads to one of several servers, and to the next one that works only after a failure, as HAProxy does with
 * one active server and `backup` servers.
 */
export class WriterAddress {
  readonly #ports: readonly number[];
  readonly #works: (port: number) => Promise<boolean>;
  readonly #sockets = new Set<Socket>();
  readonly #server: Server;
  #current: number;
  #isClosed = false;
  #moved = Promise.withResolvers<void>();

  private constructor(ports: readonly number[], works: (port: number) => Promise<boolean>) {
    this.#ports = ports;
    this.#works = works;
    this.#current = ports[0]!;
    this.#server = createServer((client) => this.#pass(client));
  }

  /** `works` says whether the server at a port can be the writer. */
  static async listen(ports: readonly number[], works: (port: number) => Promise<boolean>): Promise<WriterAddress> {
    const address = new WriterAddress(ports, works);
    await new Promise<void>((resolve) => address.#server.listen(0, '127.0.0.1', resolve));
    void address.#watch();
    return address;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  /** The port of the server that it leads to. */
  get current(): number {
    return this.#current;
  }

  /** Resolves when it leads to another server. */
  moved(): Promise<void> {
    return this.#moved.promise;
  }

  async close(): Promise<void> {
    this.#isClosed = true;
    const closed = new Promise((resolve) => this.#server.close(resolve));
    this.#disconnect();
    await closed;
  }

  async #watch(): Promise<void> {
    for (; !this.#isClosed; await sleep(checkInterval)) {
      if (await this.#works(this.#current)) continue;
      for (const port of this.#ports) {
        if (port === this.#current || this.#isClosed || !(await this.#works(port))) continue;
        this.#current = port;
        // No connection may stay with the former writer.
        this.#disconnect();
        this.#moved.resolve();
        this.#moved = Promise.withResolvers<void>();
        break;
      }
    }
  }

  #disconnect(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  #pass(client: Socket): void {
    const server = connect(this.#current, '127.0.0.1');
    for (const [from, to] of [
      [client, server],
      [server, client],
    ] as const) {
      this.#sockets.add(from);
      from.on('error', () => undefined);
      from.on('data', (bytes) => to.write(bytes));
      from.on('close', () => {
        this.#sockets.delete(from);
        to.destroy();
      });
    }
  }
}
