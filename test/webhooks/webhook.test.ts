import test from 'ava';
import { eventTypes, type RecordedEvent } from '../../src/events/event.ts';
import { bodyOf, testBody } from '../../src/webhooks/cloud-event.ts';
import { deliveryItem, type DeliveryRow } from '../../src/webhooks/delivery.ts';
import { Receivers } from '../../src/webhooks/receivers.ts';
import { delayAfter, maxAttempts, pauseOf } from '../../src/webhooks/schedule.ts';
import {
  eventOf,
  factsOf,
  parseEvents,
  parseWebhookName,
  stateOfWebhook,
  storedPatterns,
  toWebhook,
  wantsSubject,
  webhookItem,
  type WebhookRow,
} from '../../src/webhooks/webhook.ts';

// Webhooks without a server: what they have, want and send.

const row: WebhookRow = {
  id: 'id',
  account_id: 7,
  name: 'CI',
  url: 'https://hooks.example:8443/secret?token=secret',
  events: '["package.*"]',
  patterns: null,
  enabled: 1,
  disabled_reason: null,
  operate: 0,
  secret: 'encrypted',
  old_secret: null,
  old_until: null,
  since_position: 3,
  paused_until: 4,
  failing_since: null,
  created_at: Date.UTC(2027, 0, 1),
  deleted_at: null,
};

test('a webhook is shown without its account and secrets, and an event about it without its address', (t) => {
  t.deepEqual(webhookItem(toWebhook(row)), {
    id: 'id',
    name: 'CI',
    url: row.url,
    events: ['package.*'],
    patterns: null,
    enabled: true,
    disabled_reason: null,
    operate: false,
    failing_since: null,
    created_at: '2027-01-01T00:00:00.000Z',
  });
  const patterns = { packages: ['Contoso.*'] };
  const failing = { patterns: JSON.stringify(patterns), enabled: 0, disabled_reason: 'gone', operate: 1 };
  const other = toWebhook({ ...row, ...failing, failing_since: row.created_at });
  t.like(webhookItem(other), {
    patterns,
    enabled: false,
    disabled_reason: 'gone',
    operate: true,
    failing_since: '2027-01-01T00:00:00.000Z',
  });
  const host = 'hooks.example:8443';
  t.deepEqual(factsOf(row), { host, events: ['package.*'], enabled: true, operate: false });
  t.deepEqual(factsOf({ ...row, ...failing }), {
    host,
    events: ['package.*'],
    enabled: false,
    patterns,
    operate: true,
    reason: 'gone',
  });
  t.deepEqual(eventOf('webhook.updated', row, { changed: ['name'] }), {
    type: 'webhook.updated',
    accountId: 7,
    subject: { kind: 'webhook', name: 'id' },
    details: { changed: ['name'] },
  });
  t.is(stateOfWebhook({ enabled: false, failingSince: 1 }), 'disabled');
  t.is(stateOfWebhook({ enabled: true, failingSince: 0 }), 'failing');
  t.is(stateOfWebhook({ enabled: true, failingSince: null }), 'enabled');
});

test('the texts of a webhook have bounds', (t) => {
  const invalid = { name: 'Invalid' };
  t.is(parseWebhookName(` ${'x'.repeat(100)} `), 'x'.repeat(100));
  t.throws(() => parseWebhookName('x'.repeat(101)), invalid);
  t.deepEqual(parseEvents(eventTypes.slice(0, 20)), eventTypes.slice(0, 20));
  t.deepEqual(parseEvents(['package.*', '*', 'package.*']), ['package.*', '*']);
  t.deepEqual(parseEvents(Array<string>(21).fill('*')), ['*']);
  for (const [events, message] of [
    [[], /^events: expected 1 to 20 types/],
    [eventTypes.slice(0, 21), /^events: expected 1 to 20/],
    [['package.*', `package.${'x'.repeat(60)}`], /^events: there is no type "package\.x{42}"\./],
  ] as const) {
    const error = t.throws(() => parseEvents(events), { ...invalid, message });
    t.like(error, { detail: { errors: [{ field: 'events' }] } });
  }
  t.is(storedPatterns(null), null);
  t.is(storedPatterns({ packages: ['A'] }), '{"packages":["A"]}');
});

test('only names of content are limited by the patterns of a webhook, in any letter case', (t) => {
  const { names } = toWebhook({ ...row, patterns: '{"packages":["Contoso.*"]}' });
  const wants = (kind: string, name: string | null) => wantsSubject({ names }, { kind, name });
  t.true(wants('package', 'CONTOSO.Core'));
  t.false(wants('package', 'Fabrikam'));
  t.false(wants('package', null));
  t.false(wants('container', 'contoso.core'));
  t.true(wants('token', 'ci'));
  t.true(wantsSubject({ names: undefined }, { kind: 'package', name: null }));
});

test('a receiver has an http address of at most 2,000 characters, without a user, and a public one unless it is allowed', (t) => {
  const receivers = new Receivers(['10.1.2.3']);
  const longest = `https://a.example/${'x'.repeat(1982)}`;
  t.is(receivers.parse(longest), longest);
  t.is(receivers.parse('HTTP://A.example:80/x#part'), 'http://a.example/x');
  t.is(receivers.parse('http://10.1.2.3/'), 'http://10.1.2.3/');
  t.is(receivers.parse('http://[2606:4700::1]/'), 'http://[2606:4700::1]/');
  for (const [url, message] of [
    [`${longest}x`, 'expected at most 2000 characters'],
    ['', 'expected an http or https URL'],
    ['ftp://a.example', 'expected an http or https URL'],
    ['xhttp://a.example', 'expected an http or https URL'],
    ['httpsx://a.example', 'expected an http or https URL'],
    ['https://me@a.example', 'a user name or password is not allowed'],
    ['https://:pass@a.example', 'a user name or password is not allowed'],
    [
      'http://10.1.2.4/',
      'the receiver has an address that is not allowed; the setting webhooks.allow can allow private receivers',
    ],
    [
      'http://[fe80::1]/',
      'the receiver has an address that is not allowed; the setting webhooks.allow can allow private receivers',
    ],
  ] as const) {
    const error = t.throws(() => receivers.parse(url), { name: 'Invalid', message: `url: ${message}.` }, url);
    t.like(error, { detail: { parameter: 'url', errors: [{ field: 'url', message: `${message}.` }] } });
  }
});

test('a receiver asks for a pause of up to a day, in seconds or until a time', (t) => {
  const now = Date.UTC(2027, 0, 1);
  const day = 86_400_000;
  for (const [header, pause] of [
    [undefined, 0],
    ['', 0],
    ['0', 0],
    ['90', 90_000],
    ['86400', day],
    ['9999999999', day],
    ['99999999999', 0],
    ['1.5 s', 0],
    ['soon', 0],
    [new Date(now + 60_000).toUTCString(), 60_000],
    [new Date(now - 60_000).toUTCString(), 0],
    [new Date(now + 2 * day).toUTCString(), day],
  ] as const)
    t.is(pauseOf(header, now), pause, header);
  t.is(maxAttempts, 10);
  t.deepEqual([0, 1, 9, 10].map(delayAfter), [0, 5000, 86_400_000, undefined]);
});

test('a delivery is shown with its last attempt, if there was one, and the next, if there is one', (t) => {
  const delivery: DeliveryRow = {
    number: 1,
    id: 'message',
    webhook_id: 'id',
    event_position: 9,
    type: 'package.published',
    body: '{}',
    state: 'pending',
    attempts: 0,
    next_at: 2000,
    lease: 'lease',
    created_at: 1000,
    attempted_at: null,
    duration: null,
    status: null,
    failure: null,
    answer: null,
  };
  const item = {
    id: 'message',
    event_id: '9',
    type: 'package.published',
    state: 'pending',
    attempts: 0,
    created_at: '1970-01-01T00:00:01.000Z',
    next_attempt_at: '1970-01-01T00:00:02.000Z',
    last_attempt: null,
  };
  t.deepEqual(deliveryItem(delivery), item);
  const attempt = { attempts: 1, attempted_at: 1500, duration: 20, status: 204, answer: '' };
  t.deepEqual(deliveryItem({ ...delivery, ...attempt, state: 'delivered' }), {
    ...item,
    state: 'delivered',
    attempts: 1,
    next_attempt_at: null,
    last_attempt: {
      at: '1970-01-01T00:00:01.500Z',
      duration_ms: 20,
      request_headers: {
        'content-type': 'application/cloudevents+json',
        'user-agent': 'entrepot',
        'webhook-id': 'message',
        'webhook-timestamp': '1',
      },
      status: 204,
      answer: '',
      error: null,
    },
  });
});

test('a body is a CloudEvent of at most 20,000 bytes, and details that are longer are left out', (t) => {
  const event: RecordedEvent = {
    type: 'package.published',
    accountId: 7,
    account: 'team',
    position: 9,
    time: 1000,
    subject: { kind: 'package', name: 'A', reference: '1.0.0' },
    actor: { kind: 'system', id: null, name: null },
    address: null,
    requestId: null,
    details: {},
  };
  const sizeOf = (text: string) => bodyOf({ ...event, details: { text } }, '/source').length;
  const room = 20_000 - sizeOf('');
  const largest = JSON.parse(bodyOf({ ...event, details: { text: 'x'.repeat(room) } }, '/source'));
  t.is(largest.data.details.text.length, room);
  const cut = JSON.parse(bodyOf({ ...event, details: { text: 'x'.repeat(room + 1) } }, '/source'));
  t.deepEqual(cut, { ...largest, data: { ...largest.data, details: { truncated: true } } });
  t.is(largest.subject, 'A');
  const nameless = JSON.parse(bodyOf({ ...event, subject: { kind: 'package', name: null } }, '/source'));
  t.false('subject' in nameless);
  t.deepEqual(JSON.parse(testBody('test-1', 'team', 1000, '/source')), {
    specversion: '1.0',
    id: 'test-1',
    source: '/source',
    type: 'entrepot.webhook.test',
    subject: 'team',
    time: '1970-01-01T00:00:01.000Z',
    datacontenttype: 'application/json',
    data: {
      id: 'test-1',
      time: '1970-01-01T00:00:01.000Z',
      type: 'webhook.test',
      account: 'team',
      actor: { kind: 'system', id: null, name: null },
      subject: { kind: 'account', name: 'team' },
      address: null,
      request_id: null,
      details: {},
    },
  });
});
