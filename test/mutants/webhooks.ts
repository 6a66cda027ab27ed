import { mutantsOf } from './mutant.ts';

const sending = ['test/webhooks/sending.test.ts'];
const whole = ['test/api/webhooks.test.ts'];

export const webhooks = [
  ...mutantsOf('src/webhooks/deliveries.ts', sending, [
    ['two instances send the same delivery', " AND state = 'pending' AND next_at = ?", ' AND ? > 0'],
    [
      'a delivery of another webhook is shown',
      "'SELECT * FROM webhook_deliveries WHERE id = ? AND webhook_id = ?'",
      "'SELECT * FROM webhook_deliveries WHERE id = ? AND ? IS NOT NULL'",
      'test/console/webhooks.test.ts',
    ],
    ['a gone receiver stays enabled', 'if (isGone) await disable', 'if (!status) await disable'],
    ['a webhook gets events of other accounts', 'event.accountId === accountId', 'event.accountId > 0', ...whole],
    ['a webhook gets events of no account', '? operate :', '? true :', ...whole],
    ['a pause concerns only one delivery', 'if (pause > 0) {', 'if (pause > now) {'],
    ['deliveries wait without a bound', 'if (beyond) await', 'if (!beyond && row.enabled === 0) await'],
  ]),
  ...mutantsOf('src/webhooks/webhooks.ts', sending, [
    [
      'a webhook that is enabled stays paused',
      'enabled: change.enabled ? 1 : 0, disabled_reason: null, paused_until: 0 }',
      'enabled: change.enabled ? 1 : 0, disabled_reason: null }',
    ],
    [
      'a webhook with another address stays paused',
      '{ url: receivers.parse(change.url), paused_until: 0, failing_since: null }',
      '{ url: receivers.parse(change.url), failing_since: null }',
    ],
    [
      'a webhook that delivers again stays paused',
      'SET paused_until = 0 WHERE id = ?',
      'SET enabled = enabled WHERE id = ?',
    ],
  ]),
  ...mutantsOf(
    'src/webhooks/retention.ts',
    ['test/api/webhook-turns.long.test.ts'],
    [['finished deliveries are kept without a bound', 'OFFSET ${maxKept}', 'OFFSET 1${maxKept}']],
  ),
  ...mutantsOf(
    'src/webhooks/webhooks.ts',
    ['test/api/webhook-turns.long.test.ts'],
    [
      [
        'of many webhooks without their key some stay enabled',
        'if (changed < changedAtOnce) return total;',
        'return total;',
        'test/webhooks/secrets.test.ts',
      ],
      ['a webhook is enabled without its key', ' || change.enabled', '', 'test/webhooks/secrets.test.ts'],
    ],
  ),
  ...mutantsOf('src/webhooks/sender.ts', sending, [
    ['one webhook takes the share of its account', ': maxOfWebhook;', ': maxOfAccount;'],
    ['the old secret stays valid', ' && at < webhook.old_until!', '', ...whole],
    ['a redirect is a success', 'status >= 200 && status < 300', 'status >= 200 && status < 400'],
    ['a delivery that was broken off waits for its lease', 'broken.map(({ claimed }) => claimed)', '[]'],
  ]),
  ...mutantsOf('src/upstream/private-hosts.ts', sending, [
    ['every private address is allowed', "if (reach === 'public') return;", "if (reach !== 'never') return;"],
  ]),
  ...mutantsOf(
    'src/webhooks/secrets.ts',
    ['test/webhooks/secrets.test.ts'],
    [['a wrong key is used', 'proof !== undefined && proof !== key.proof', 'proof === ""']],
  ),
  ...mutantsOf(
    'src/storage/files/durable.ts',
    ['test/webhooks/secrets.test.ts'],
    [['others may read the key', '0o600', '0o644']],
  ),
  ...mutantsOf('src/webhooks/post.ts', sending, [['a huge answer is read whole', 'if (size === maxRead) break;', '']]),
  ...mutantsOf('src/api/webhooks/webhooks.ts', whole, [
    [
      'an administrator leads events of no account elsewhere',
      "if (!sees(principal, found)) allowedAs(principal, 'operate', allNames);",
      '',
    ],
    [
      'an administrator sees the address of a webhook of an operator',
      'sees(principal, each) &&',
      '',
      'test/api/operate-objects.test.ts',
    ],
  ]),
  ...mutantsOf('src/events/events.ts', whole, [
    [
      'events without deliveries are deleted',
      'AND position <= ? ORDER BY time',
      'AND position < ? + 1000 ORDER BY time',
    ],
  ]),
  ...mutantsOf(
    'src/limits/limits.ts',
    ['test/api/account-bounds.test.ts'],
    [
      [
        'more tokens are more quota',
        'if (client.accountId === 0) return taking;',
        'if (client.accountId >= 0) return taking;',
      ],
    ],
  ),
  ...mutantsOf(
    'src/oci/hosted/manifests.ts',
    ['test/api/account-bounds.test.ts'],
    [['each repeated push writes an event', 'if (!isRepeated || isClaim)', 'if (!isRepeated || !isClaim)']],
  ),
  ...mutantsOf(
    'src/events/repeated.ts',
    ['test/api/audit.test.ts'],
    [
      [
        'the last repetition begins the period',
        'const isDue = ({ event, first }: Kept)',
        'const isDue = ({ event, last: first }: Kept)',
      ],
    ],
  ),
  ...mutantsOf(
    'src/events/event-list.ts',
    ['test/api/audit-lists.long.test.ts'],
    [
      ['a list with times is in the order of positions', 'subject === undefined && (since', 'subject === "" && (since'],
      ['a list reads all events', 'examined >= maxExamined', 'examined < 0'],
      ['events of one time are left out', '[nearest, latestFirst ? Number.MAX_SAFE_INTEGER : 0]', '[nearest, 0]'],
    ],
  ),
  ...mutantsOf(
    'src/console/pages/operations/webhook.ts',
    ['test/console/webhooks.test.ts'],
    [['a time without seconds is refused', "text.padEnd(19, ':00')", 'text']],
  ),
];
