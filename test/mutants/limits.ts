import { mutantsOf } from './mutant.ts';

const rates = 'test/http/rate-limits.long.test.ts';

export const limits = [
  ...mutantsOf(
    'src/limits/buckets.ts',
    ['test/limits/buckets.test.ts'],
    [
      ['a refused request uses up the quota', 'if (wait > patience) return', 'if (wait > 1e9) return'],
      ['keys in memory have no bound', '(maxKeys)', '(10 * maxKeys)'],
      [
        'Redis forgets a quota before it is free',
        "free + step\n  redis.call('SET', KEYS[1], string.format('%.6f', free), 'PX', math.ceil(free - now))",
        "free + step\n  redis.call('SET', KEYS[1], string.format('%.6f', free), 'PX', 1)",
      ],
      [
        'without Redis nothing is limited',
        'takenOf(found) ?? this.#memory.take(key, rate, patience)',
        'takenOf(found)!',
      ],
    ],
  ),
  ...mutantsOf(
    'src/limits/limits.ts',
    [rates],
    [
      ['each instance counts searches for itself', 'searches: common', 'searches: local'],
      [
        'all credentials are looked up at the same time',
        'if (until > this.#now()) return this.#lookUps.run(look, key);',
        '',
        'test/limits/look-ups.test.ts',
      ],
    ],
  ),
  ...mutantsOf(
    'src/http/limit.ts',
    [rates],
    [
      [
        'the tokens of one address share a limit',
        "if (!principal || principal.kind === 'anonymous') return",
        'if (principal) return',
      ],
      ['an upload counts for ever', "else response.once('close', end);", ''],
    ],
  ),
  ...mutantsOf(
    'src/http/listener.ts',
    ['test/http/connection-limits.long.test.ts'],
    [
      [
        'a trusted proxy is one client',
        'remoteAddress === undefined || isProxy(remoteAddress)',
        'remoteAddress === undefined',
      ],
      ['closed connections count', "socket.once('close', release);", ''],
    ],
  ),
  ...mutantsOf(
    'src/http/slow-body.ts',
    ['test/http/connection-limits.long.test.ts'],
    [['a slow body may take for ever', 'if (slowSpans > spans) request.destroy();', '']],
  ),
];
