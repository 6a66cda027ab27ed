import { mutantsOf } from './mutant.ts';

const failures = ['test/upstream/failures.test.ts'];

export const upstream = [
  ...mutantsOf(
    'src/upstream/credential-command.ts',
    ['test/upstream/credential-sources.test.ts'],
    [['a command for credentials gets the secrets of the server', "!name.startsWith('ENTREPOT_')", 'name.length > 0']],
  ),
  ...mutantsOf(
    'src/upstream/addresses.ts',
    ['test/upstream/addresses.test.ts'],
    [['private metadata services of clouds are allowed with private networks', "'fd00:ec2::/32', ", '']],
  ),
  ...mutantsOf('src/upstream/failures.ts', failures, [
    ['Retry-After has no upper bound', 'Math.min(Math.max(milliseconds, 0), maxLimit)', 'Math.max(milliseconds, 0)'],
    [
      'a Retry-After in the past is negative',
      'Math.min(Math.max(milliseconds, 0), maxLimit)',
      'Math.min(milliseconds, maxLimit)',
    ],
    ['a malformed Retry-After is not ignored', 'Number.isFinite(milliseconds) ?', 'header ?'],
    ['Retry-After is in milliseconds', 'Number(header) * 1000', 'Number(header)'],
    [
      'a Retry-After date is compared with the clock of this machine',
      'Number.isNaN(theirNow) ? Date.now() : theirNow',
      'Date.now()',
    ],
  ]),

  ...mutantsOf(
    'src/upstream/addresses.ts',
    ['test/upstream/addresses.test.ts'],
    [
      ['carrier-grade addresses are public', "'100.64.0.0/10', ", ''],
      ['link-local addresses are public', "'fe80::/10', ", ''],
      ['the metadata of clouds can be read', "'169.254.0.0/16', ", ''],
      [
        'only the first address of a name is checked',
        'for (const { address } of addresses) check',
        'for (const { address } of addresses.slice(0, 1)) check',
      ],
      ['a literal address is not checked', 'if (isIP(host)) check(host, host);', ''],
      ['NAT64 hides a private address', "'64:ff9b::', ", ''],
    ],
  ),
  ...mutantsOf(
    'src/upstream/slow-body.ts',
    ['test/mirror/slow-upstreams.test.ts'],
    [['a slow reader is a fault of the upstream', 'body.isPaused() || body.readableLength > 0', 'false']],
  ),
  ...mutantsOf(
    'src/upstream/connections.ts',
    ['test/upstream/connections.long.test.ts'],
    [
      ['the queue has no bound', ', maxWaiting });', ' });'],
      ['a cancelled request stays in the queue', "end.addEventListener('abort', abort);", ''],
    ],
  ),
  ...mutantsOf('src/upstream/pause.ts', failures, [
    [
      'a pause grows without a bound',
      'Math.min(max, min * 2 ** Math.min(failures - 1, 6))',
      'min * 2 ** (failures - 1)',
    ],
    [
      'requests that fail together count each',
      'const together = previous !== undefined && began < previous.sequence;',
      'const together = previous !== undefined && began < 0;',
    ],
    ['a longer Retry-After is ignored', 'now + Math.max(own, retryAfter)', 'now + own'],
  ]),
  ...mutantsOf('src/upstream/breaker.ts', failures, [
    [
      'an upstream is paused one subject early',
      'this.#failing.size >= failingLimit',
      'this.#failing.size >= failingLimit - 1',
    ],
    ['a late success ends a newer pause', 'if (beganBefore(this.#upstream, sequence)) {', 'if (this.#upstream) {'],
    ['every request may be the probe', 'paused !== undefined && !this.#subjects.has(subject)', 'paused !== undefined'],
    ['a hanging probe blocks the upstream', 'until: now + paused.length }', 'until: now + paused.length * 1000 }'],
    [
      'a cancelled probe blocks the upstream',
      '{ ...paused, until: paused.from }',
      '{ ...paused, until: paused.until }',
    ],
  ]),
  ...mutantsOf(
    'src/upstream/tokens.ts',
    ['test/upstream/credentials.test.ts'],
    [
      ['tokens live a thousand times too long', '- 10) * 900', '- 10) * 900_000'],
      ['tokens of other credentials are used', 'service, keptAs, credentials)', 'service, keptAs)'],
      ['tokens of another scope are used', 'service, keptAs, credentials)', 'service, credentials)'],
    ],
  ),
  ...mutantsOf(
    'src/upstream/credentials.ts',
    ['test/upstream/credentials.test.ts'],
    [['a foreign realm gets the credentials', 'if (this.belongs(realm)) return this.send();', 'return this.send();']],
  ),
];
