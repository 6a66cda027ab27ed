import type { IncomingMessage } from 'node:http';
import { isIP } from 'node:net';
import type { TLSSocket } from 'node:tls';
import proxyAddress from 'proxy-addr';
import type { Config } from '../config/schema.ts';

// The headers of trusted reverse proxies. Each proxy appends its value, so a client can forge only the values further left.

type Request = Pick<IncomingMessage, 'headers' | 'socket'>;

/** Tells which part of the forwarded headers was written by trusted proxies. */
export class Proxies {
  /** Whether an address, at a distance of so many proxies, is trusted; undefined if no proxy is. */
  readonly #isTrusted: ((address: string, distance: number) => boolean) | undefined;

  /** Takes the number of trusted proxies, or their addresses. */
  constructor(trusted: Config['server']['trustProxy']) {
    if (typeof trusted !== 'number') {
      const isOne = proxyAddress.compile([...trusted]);
      this.#isTrusted = (address, distance) => isOne(withoutPort(address), distance);
    } else if (trusted > 0) this.#isTrusted = (_address, distance) => distance < trusted;
  }

  /** Host and port that the client requested; undefined if it sent none. */
  hostOf(request: Request): string | undefined {
    return this.#forwarded(request, 'x-forwarded-host') ?? request.headers.host;
  }

  /** What the client used: as a trusted proxy reports, otherwise as this server accepted the request. */
  schemeOf(request: Request): 'http' | 'https' {
    const forwarded = this.#forwarded(request, 'x-forwarded-proto')?.toLowerCase();
    if (forwarded !== undefined) return forwarded === 'https' ? 'https' : 'http';
    return (request.socket as Partial<TLSSocket>).encrypted === true ? 'https' : 'http';
  }

  /** Whether a connection from `address` is one of a trusted proxy, which has many clients. */
  isProxy(address: string | undefined): boolean {
    return this.#isTrusted?.(address ?? '', 0) ?? false;
  }

  /** The client's address: the right-most one in X-Forwarded-For that is not a trusted proxy's. */
  remoteOf(request: Request): string | undefined {
    const direct = request.socket.remoteAddress;
    if (!this.#isTrusted) return direct;
    const address = withoutPort(proxyAddress(request as IncomingMessage, this.#isTrusted));
    return isIP(address) ? address : direct;
  }

  /** The value that the outermost of the trusted proxies appended to a list; undefined without a value or such a proxy. */
  #forwarded(request: Request, name: string): string | undefined {
    const header = this.#isTrusted && request.headers[name];
    if (!this.#isTrusted || header === undefined) return undefined;
    if (!this.#isTrusted(request.socket.remoteAddress ?? '', 0)) return undefined;
    const values = String(header).split(',');
    const passed = Math.max(1, proxyAddress.all(request as IncomingMessage, this.#isTrusted).length - 1);
    return values.at(-Math.min(passed, values.length))!.trim() || undefined;
  }
}

/** An address as some proxies append it, with a port: `192.0.2.1:4711`, `[2001:db8::1]:4711`. Undefined after the client has left. */
function withoutPort(address: string | undefined): string {
  return (address ?? '').replace(/^\[(.*)\](?::\d+)?$|^([\d.]+):\d+$/, '$1$2');
}
