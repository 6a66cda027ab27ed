import { itemOf, type EventItem, type RecordedEvent } from '../events/event.ts';

/** Bytes of a body. */
const maxBody = 20_000;

interface Described {
  id: string;
  time: string;
  type: string;
  subject: { name: string | null };
  details: unknown;
}

/** The body for an event: a CloudEvent 1.0 in structured JSON. Details that make it too long are left out. */
export function bodyOf(event: RecordedEvent, source: string): string {
  return cloudEvent(itemOf(event), source);
}

/** The body of a test: as of an event, with the type `webhook.test`. `time` is in milliseconds since 1970. */
export function testBody(id: string, account: string, time: number, source: string): string {
  const data: Omit<EventItem, 'type'> & { type: 'webhook.test' } = {
    id,
    time: new Date(time).toISOString(),
    type: 'webhook.test',
    account,
    actor: { kind: 'system', id: null, name: null },
    subject: { kind: 'account', name: account },
    address: null,
    request_id: null,
    details: {},
  };
  return cloudEvent(data, source);
}

function cloudEvent(data: Described, source: string): string {
  const { id, time, type, subject } = data;
  const event = {
    specversion: '1.0',
    id,
    source,
    type: `entrepot.${type}`,
    ...(subject.name !== null && { subject: subject.name }),
    time,
    datacontenttype: 'application/json',
    data,
  };
  const body = JSON.stringify(event);
  if (Buffer.byteLength(body) <= maxBody) return body;
  return JSON.stringify({ ...event, data: { ...data, details: { truncated: true } } });
}
