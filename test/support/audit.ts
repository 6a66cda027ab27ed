import type { EventItem } from '../../src/events/event.ts';
import type { TestServer } from './server.ts';

export interface AuditPage {
  items: EventItem[];
  next_cursor: string | null;
}

/** A page of `/v1/audit`; throws if it does not answer 200. */
export async function auditPage(server: TestServer, query = '', token?: string): Promise<AuditPage> {
  const response = await server.fetch(`/v1/audit?${query}`, { ...(token !== undefined && { token }) });
  if (response.status !== 200) throw new Error(`${response.status} ${await response.text()}`);
  return (await response.json()) as AuditPage;
}

/** The events of `/v1/audit`, the earliest first. */
export async function auditOf(server: TestServer, query = '', token?: string): Promise<EventItem[]> {
  return (await auditPage(server, `limit=200&${query}`, token)).items.toReversed();
}

/** What an event says, in short: `package.published A 1.0.0`. */
export function said({ type, subject }: EventItem): string {
  return [type, subject.name, subject.version ?? subject.reference].filter(Boolean).join(' ');
}
