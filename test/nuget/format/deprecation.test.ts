import test from 'ava';
import {
  parseAffected,
  parseDeprecation,
  storedDeprecation,
  type DeprecationInput,
} from '../../../src/nuget/format/deprecation.ts';

const legacy = { reasons: ['Legacy'] };

test('a deprecation is read, with its texts trimmed and its reasons in order', (t) => {
  t.deepEqual(parseDeprecation('A', { ...legacy, message: null, alternative: null }), {
    reasons: ['Legacy'],
    message: undefined,
    alternatePackage: undefined,
  });
  const given = {
    reasons: ['Other', 'CriticalBugs', 'Legacy', 'Other'],
    message: ' one\n\ttwo\ud800 ',
    alternative: { id: 'B' },
  };
  t.deepEqual(parseDeprecation('A', given), {
    reasons: ['Legacy', 'CriticalBugs', 'Other'],
    message: 'one\n\ttwo\ufffd',
    alternatePackage: { id: 'B', range: '*' },
  });
  const alternative = (id: string, range?: string | null) =>
    parseDeprecation('A', { ...legacy, alternative: { id, range } }).alternatePackage;
  for (const range of [null, '', ' ', '*', ' * ']) t.deepEqual(alternative('B', range), { id: 'B', range: '*' });
  t.deepEqual(alternative('a', ' [2.0,) '), { id: 'a', range: '[2.0.0, )' }, 'other versions of the same package');
  t.deepEqual(alternative('B', '1.0'), { id: 'B', range: '[1.0.0, )' });
  t.deepEqual(storedDeprecation('{"reasons":["Legacy"]}') as object, legacy);
  t.is(storedDeprecation(null), undefined);
  t.is(parseDeprecation('A', { ...legacy, message: 'x'.repeat(1000) }).message?.length, 1000);
});

test('a deprecation that is refused says which field is wrong', (t) => {
  const cases: [DeprecationInput, field: string, message: RegExp][] = [
    [{ reasons: [] }, 'reasons', /^Give one or more of the reasons Legacy, CriticalBugs, Other\.$/],
    [{ reasons: ['Legacy', 'legacy'] }, 'reasons', /^Give one or more of the reasons/],
    [{ reasons: ['Other'] }, 'message', /^The reason Other needs a message\.$/],
    [{ reasons: ['Other'], message: ' ' }, 'message', /^The reason Other needs a message\.$/],
    [{ ...legacy, message: 'x'.repeat(1001) }, 'message', /^The message has 1001 characters; at most 1000/],
    [{ ...legacy, message: 'a\u0007' }, 'message', /control characters/],
    [{ ...legacy, alternative: { id: 'a b' } }, 'alternative', /needs a valid package ID/],
    [{ ...legacy, alternative: { id: 'LIB' } }, 'alternative', /cannot replace itself/],
    [{ ...legacy, alternative: { id: 'B', range: '[2.0' } }, 'alternative', /not a range of versions/],
    [{ ...legacy, alternative: { id: 'B', range: '1.*' } }, 'alternative', /not a range of versions/],
  ];
  for (const [input, field, message] of cases) {
    const error = t.throws(() => parseDeprecation('Lib', input), { name: 'Invalid', message });
    t.deepEqual((error as { detail?: unknown }).detail, { errors: [{ field, message: error.message }] });
  }
});

const long = (labels: number) => `[1.0.0-${'a'.repeat(labels)},2.0.0]`;

test('the versions of an advisory are a range with brackets, of at most 255 characters', (t) => {
  t.is(parseAffected(' [1.0, 2.0) '), '[1.0.0, 2.0.0)');
  t.is(parseAffected('(,1.2]'), '(, 1.2.0]');
  t.is(parseAffected(long(240)).length, 255);
  const cases: [string, RegExp][] = [
    ['1.0', /Write the range with brackets/],
    ['x[1.0]', /Write the range with brackets/],
    ['[1.0', /not a range of versions/],
    ['[1.*, 2.0)', /not a range of versions/],
    [long(241), /at most 255 characters/],
    [`[1.0]${' '.repeat(251)}`, /not a range of versions/],
  ];
  for (const [text, message] of cases) {
    const error = t.throws(() => parseAffected(text), { name: 'Invalid', message }, text);
    t.like((error as { detail?: unknown }).detail, { errors: [{ field: 'versions' }] });
  }
});
