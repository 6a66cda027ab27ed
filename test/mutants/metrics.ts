import { mutantsOf } from './mutant.ts';

export const metrics = [
  ...mutantsOf(
    'src/metrics/exchange.ts',
    ['test/metrics/exchange.test.ts'],
    [
      ['the counters of an ended worker are lost', 'if (peer.report) this.#ended =', 'if (!peer.report) this.#ended ='],
      ['a worker that hangs is asked again and again', 'filter(({ isAsked }) => !isAsked)', 'filter(() => true)'],
    ],
  ),
  ...mutantsOf(
    'src/runtime/in-turn.ts',
    ['test/metrics/exchange.test.ts'],
    [
      ['workers are asked without a pause', 'if (rest > 0) await sleep(rest);', ''],
      ['a later request shares an exchange that has begun', '    next = undefined;\n    beganAt', '    beganAt'],
    ],
  ),
  ...mutantsOf(
    'src/metrics/report.ts',
    ['test/metrics/exchange.test.ts'],
    [['the gauges of an ended worker stay', "type !== 'gauge'", 'type.length > 0']],
  ),
  ...mutantsOf(
    'src/metrics/samples.ts',
    ['test/metrics/exchange.test.ts'],
    [['a measurement that hangs is started again', 'sample.running || now', 'now']],
  ),
  ...mutantsOf(
    'src/upstream/counts.ts',
    ['test/metrics/mirror.test.ts'],
    [['each status of an upstream is a series', 'status <= lastStatus ?', 'status <= 1000 ?']],
  ),
  ...mutantsOf(
    'src/mirror/mirror.ts',
    ['test/metrics/mirror.test.ts'],
    [['a failed request to the mirror is not counted', 'use.requests.failed += 1;', ';']],
  ),
  ...mutantsOf(
    'src/server/register-metrics.ts',
    ['test/metrics/mirror.test.ts'],
    [['the breakers of two upstreams with one ID add up', '? value : join(before, value)', '? value : before + value']],
  ),
];
