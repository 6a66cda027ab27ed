import { isIP } from 'node:net';

/** Whether `text` is a host name or an IP address. */
export function isHostName(text: string): boolean {
  return isIP(text) !== 0 || /^(?!\d+(?:\.\d+)*$)[a-z0-9_](?:[a-z0-9._-]{0,252}[a-z0-9])?$/i.test(text);
}

/** Whether `text` is a host name, an IP address or a network in CIDR notation. */
export function isReceiver(text: string): boolean {
  const [address = '', prefix] = text.split(/\/(?=\d{1,3}$)/);
  if (prefix === undefined) return isHostName(text);
  return isIP(address) !== 0 && Number(prefix) <= (isIP(address) === 6 ? 128 : 32);
}
