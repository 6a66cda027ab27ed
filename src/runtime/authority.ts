/** The part of a URL that names a host and a port, where an IPv6 address is between brackets. */
export function authorityOf(host: string, port: number): string {
  return `${host.includes(':') ? `[${host}]` : host}:${port}`;
}
