import { createHash } from 'node:crypto';

/**
 * The prefix of the keys of an installation, which separates installations in one Redis: from the address of its database
 * without user and password, which change while instances run, or from its data folder.
 */
export function namespaceOf(databaseUrl: string | undefined, data: string): string {
  const place = databaseUrl?.replace(/^m\w+:\/\/(?:[^/]*@)?/, 'mysql://') ?? data;
  return `entrepot-${createHash('sha256').update(place).digest('hex').slice(0, 12)}`;
}
