import { connect, createServer, type Server, type Socket } from 'node:net';
import type { AddressInfo } from 'node:net';

/** A TCP proxy in front of a real server, which can act as one that has stopped or is frozen. */
export class TcpProxy {
  #target: { host: string; port: number };
  readonly #pairs = new Set<[client: Socket, server: Socket]>();
  readonly #abandoned = new Set<[client: Socket, server: Socket]>();
  #listener: Server | undefined;
  #port = 0;
  #isFrozen = false;

  constructor(target: { host: string; port: number }) {
    this.#target = target;
  }

  /** Accepts connections; resolves to the port, which stays the same after `refuse`. */
  async listen(): Promise<number> {
    const listener = createServer({ pauseOnConnect: true }, (client) => this.#accept(client));
    await new Promise<void>((resolve, reject) =>
      listener.once('error', reject).listen(this.#port, '127.0.0.1', resolve),
    );
    this.#listener = listener;
    this.#port = (listener.address() as AddressInfo).port;
    return this.#port;
  }

  /** Until `resume`, connections stay open and are accepted, and no byte passes. */
  freeze(): void {
    this.#isFrozen = true;
    for (const pair of this.#pairs) for (const each of pair) each.pause();
  }

  /** New connections lead to another server, as after a failover; those that are open stay as they are. */
  lead(target: { host: string; port: number }): void {
    this.#target = target;
  }

  /** No byte passes any more on the connections that are open now, as after a failover. New connections work. */
  abandon(): void {
    for (const pair of this.#pairs) {
      for (const each of pair) each.pause();
      this.#abandoned.add(pair);
    }
    this.#pairs.clear();
  }

  /** Ends `freeze` and `refuse`. */
  async resume(): Promise<void> {
    this.#isFrozen = false;
    for (const pair of this.#pairs) for (const each of pair) each.resume();
    if (!this.#listener) await this.listen();
  }

  /** Until `resume`, breaks all connections and refuses new ones. */
  async refuse(): Promise<void> {
    await this.close();
  }

  /** Breaks all connections and stops. */
  async close(): Promise<void> {
    const listener = this.#listener;
    this.#listener = undefined;
    for (const pairs of [this.#pairs, this.#abandoned]) {
      for (const pair of pairs) for (const each of pair) each.destroy();
    }
    if (listener) await new Promise((resolve) => listener.close(resolve));
  }

  #accept(client: Socket): void {
    const server = connect(this.#target);
    const pair: [Socket, Socket] = [client, server];
    this.#pairs.add(pair);
    const pass = (from: Socket, to: Socket) => {
      from.on('data', (bytes) => to.write(bytes));
      from.on('end', () => to.end());
      from.on('error', () => to.destroy());
      from.on('close', () => {
        this.#pairs.delete(pair);
        to.destroy();
      });
      if (this.#isFrozen) from.pause();
      else from.resume();
    };
    pass(client, server);
    pass(server, client);
  }
}
