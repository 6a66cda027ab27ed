/** The part of a URL that names a host and a port, where an IPv6 address is between brackets. */
export function authorityOf(host: string, port: number): string {
  return `${bracketed(host)}:${port}`;
}

/** A name or an address in the form that it has in a URL; as it is if no URL can have it. */
export function hostnameOf(host: string): string {
  return URL.parse(`http://${bracketed(host)}`)?.hostname ?? host;
}

function bracketed(host: string): string {
  return host.includes(':') ? `[${host}]` : host;
}

/** Whether a host of a URL is this machine alone. */
export function isLoopback(hostname: string): boolean {
  return hostname === 'localhost' || hostname === '[::1]' || /^127\.\d+\.\d+\.\d+$/.test(hostname);
}
