import { mutantsOf } from './mutant.ts';

const sending = ['test/webhooks/sending.test.ts'];
const whole = ['test/http/webhooks.test.ts'];

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
    [
      'a webhook gets events of before',
      'event.position > row.since_position && ',
      '',
      'test/webhooks/deliveries.test.ts',
    ],
    ['a pause concerns only one delivery', 'if (pause > 0) {', 'if (pause > now) {'],
    ['deliveries wait without a bound', 'if (beyond) await', 'if (!beyond && row.enabled === 0) await'],
  ]),
  ...mutantsOf('src/webhooks/sender.ts', sending, [
    ['one webhook takes the share of its account', ': mostOfWebhook;', ': mostOfAccount;'],
    ['one account takes all', ' || usedBy(webhook) >= mostOfAccount', ''],
    ['the old secret stays valid', ' && at < webhook.old_until!', '', ...whole],
    ['a redirect is a success', 'status >= 200 && status < 300', 'status >= 200 && status < 400'],
    ['a delivery that was broken off waits for its lease', 'broken.map(({ claimed }) => claimed)', '[]'],
  ]),
  ...mutantsOf('src/webhooks/receivers.ts', sending, [
    ['an allowed host may have the address of metadata', "reach === 'private' && (", '('],
    ['every private address is allowed', "if (reach === 'public') return;", "if (reach !== 'never') return;"],
  ]),
  ...mutantsOf(
    'src/webhooks/secrets.ts',
    ['test/webhooks/secrets.test.ts'],
    [
      ['a wrong key is used', 'proof !== undefined && proof !== key.proof', 'proof === ""'],
      ['others may read the key', '0o600', '0o644'],
    ],
  ),
  ...mutantsOf('src/upstream/post.ts', sending, [['a huge answer is read whole', 'if (size === mostRead) break;', '']]),
  ...mutantsOf('src/api/webhooks.ts', whole, [
    [
      'a token with patterns has webhooks',
      'if (!names) return accountId;',
      'if (accountId > 0 || names) return accountId;',
    ],
    [
      'an administrator leads events of no account elsewhere',
      "if ((await webhooks.get(account, id)).operate) allow(principal, 'operate');",
      '',
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
    'src/console/pages/webhook.ts',
    ['test/console/webhooks.test.ts'],
    [
      ['a time without seconds is refused', "text.padEnd(19, ':00')", 'text'],
      ['the form shows the stored fields after an error', "form?.get('act') === 'change'", "form?.get('act') === ''"],
    ],
  ),
];
