import { isIPv4, isIPv6 } from 'node:net';

/**
 * The key under which an address is counted: IPv4 as it is, IPv4-mapped IPv6 as IPv4, and IPv6 by its /64, because one
 * client has all of that.
 */
export function addressKey(address: string | undefined): string {
  const text = address?.split('%', 1)[0] ?? '';
  if (isIPv4(text)) return text;
  if (!isIPv6(text)) return 'unknown';
  const groups = groupsOf(text);
  const [a = 0, b = 0] = groups.slice(6);
  if (groups.slice(0, 5).every((each) => each === 0) && groups[5] === 0xffff) {
    return [a >> 8, a & 0xff, b >> 8, b & 0xff].join('.');
  }
  const network = groups.slice(0, 4).map((each) => each.toString(16));
  return `${network.join(':')}::/64`;
}

/** The eight groups of a valid IPv6 address (RFC 4291, 2.2). */
function groupsOf(address: string): number[] {
  const [head = [], tail] = address.split('::', 2).map(numbersIn);
  if (tail === undefined) return head;
  return [...head, ...Array<number>(8 - head.length - tail.length).fill(0), ...tail];
}

function numbersIn(part: string): number[] {
  if (part === '') return [];
  return part.split(':').flatMap((group) => {
    if (!group.includes('.')) return [Number.parseInt(group, 16)];
    const [a = 0, b = 0, c = 0, d = 0] = group.split('.').map(Number);
    return [a * 256 + b, c * 256 + d];
  });
}
