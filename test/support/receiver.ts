import { once } from 'node:events';
import { createServer, type IncomingHttpHeaders, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ExecutionContext } from 'ava';
import { Webhook as Verifier } from 'standardwebhooks';
import type { WebhookItem } from '../../src/webhooks/webhook.ts';
import type { AttemptItem, DeliveryItem } from '../../src/webhooks/delivery.ts';
import type { EventItem } from '../../src/events/event.ts';
import type { TestServer } from './server.ts';
import { until } from './until.ts';

export interface CloudEvent {
  specversion: string;
  id: string;
  source: string;
  type: string;
  time: string;
  subject?: string;
  datacontenttype: string;
  data: EventItem;
}

export interface Received {
  headers: IncomingHttpHeaders;
  body: string;
  event: CloudEvent;
}

/** A receiver of webhooks on loopback. */
export interface Receiver {
  url: string;
  received: Received[];
  /** Answers a request; 204 by default. */
  answer: (response: ServerResponse, received: Received) => void;
  /** Accepts no more connections until `start`. */
  stop(): Promise<void>;
  start(): Promise<void>;
}

export async function startReceiver(t: Pick<ExecutionContext, 'teardown'>): Promise<Receiver> {
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString();
    const one: Received = { headers: request.headers, body, event: JSON.parse(body) as CloudEvent };
    receiver.received.push(one);
    receiver.answer(response, one);
  });
  const listen = async (port: number) => {
    server.listen(port, '127.0.0.1');
    await once(server, 'listening');
    return (server.address() as AddressInfo).port;
  };
  const stop = async () => {
    if (!server.listening) return;
    server.closeAllConnections();
    await new Promise((resolve) => server.close(resolve));
  };
  t.teardown(stop);
  const port = await listen(0);
  const receiver: Receiver = {
    url: `http://127.0.0.1:${port}/hook`,
    received: [],
    answer: (response) => response.writeHead(204).end(),
    stop,
    start: async () => void (await listen(port)),
  };
  return receiver;
}

/** Settings that allow receivers on loopback. */
export const allowLoopback = { webhooks: { allow: ['127.0.0.1'] } };

export type NewWebhook = WebhookItem & { secret: string };

/** Creates a webhook; throws if that fails. */
export async function createWebhook(
  server: TestServer,
  url: string,
  events: string[] = ['*'],
  token?: string,
): Promise<NewWebhook> {
  return (await api(server, 'POST', '', { url, events }, token)) as NewWebhook;
}

/** Sends a request to `/v1/webhooks`; throws if it does not succeed. */
export async function api(
  server: TestServer,
  method: string,
  path = '',
  body?: unknown,
  token?: string,
): Promise<unknown> {
  const response = await ask(server, method, path, body, token);
  const text = await response.text();
  if (!response.ok) throw new Error(`${response.status} ${text}`);
  return text === '' ? undefined : JSON.parse(text);
}

/** The same without a check of the answer. */
export function ask(server: TestServer, method: string, path = '', body?: unknown, token?: string): Promise<Response> {
  return server.fetch(`/v1/webhooks${path}`, {
    method,
    ...(body !== undefined && { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }),
    ...(token !== undefined && { token }),
  });
}

export async function deliveriesOf(server: TestServer, id: string): Promise<DeliveryItem[]> {
  const { items } = (await api(server, 'GET', `/${id}/deliveries?limit=200`)) as { items: DeliveryItem[] };
  return items.toReversed();
}

export async function testOf(server: TestServer, id: string): Promise<AttemptItem & { id: string }> {
  return (await api(server, 'POST', `/${id}/test`)) as AttemptItem & { id: string };
}

/** Lets the server deliver until `condition` is true. */
export async function deliverUntil(server: TestServer, condition: () => boolean | Promise<boolean>): Promise<void> {
  await until(async () => {
    await server.installation.webhooks.tick();
    return condition();
  });
}

/** Throws unless a signature of the request was made with `secret`. */
export function verify({ headers, body }: Received, secret: string): void {
  new Verifier(secret).verify(body, headers as Record<string, string>);
}
