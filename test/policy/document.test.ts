import test from 'ava';
import { versionTest } from '../../src/nuget/format/range.ts';
import { compileLayer } from '../../src/policy/compile.ts';
import { checkPolicy, parsePolicy } from '../../src/policy/document.ts';

test('an empty policy ends one', (t) => {
  for (const text of ['', '# nothing', '{}', 'null']) t.is(parsePolicy(text), null, JSON.stringify(text));
});

test('what is left out has its default', (t) => {
  const { document } = parsePolicy('minimumAge: { packages: 3d }')!;
  const minimumAge = {
    packages: 3 * 86_400_000,
    images: 0,
    fixesPass: true,
    unknownDate: 'firstSeen',
    held: 'hide',
    except: { packages: [], images: [], upstreams: [] },
  };
  t.deepEqual(document as unknown, {
    mode: 'enforce',
    minimumAge,
    knownBad: { lists: [], verdict: 'deny' },
    advisories: { verdict: 'deny', except: [] },
    withdrawn: 'keep',
    rules: [],
  });
  t.deepEqual(parsePolicy('mode: audit')!.written, { mode: 'audit' });
});

test('each word that a policy may have is read', (t) => {
  for (const text of [
    'mode: enforce',
    'minimumAge: { unknownDate: firstSeen, held: hide, fixesPass: false }',
    'minimumAge: { unknownDate: hold, held: list }',
    'knownBad: { verdict: deny }',
    'advisories: { severity: low, verdict: deny, except: [CVE-1] }',
    'withdrawn: keep',
    'withdrawn: deny',
    `rules: [{ name: ${'a'.repeat(100)}, digests: ["sha512:${'a'.repeat(128)}"], verdict: allow, reason: known }]`,
    'rules: [{ name: a.b_c-2, images: ["a"], tags: ["v*"], verdict: deny }]',
  ])
    t.notThrows(() => parsePolicy(text), text);
  t.true(
    compileLayer(
      { scope: 'all', document: checkPolicy({ minimumAge: { held: 'list' } })!.document, regimes: [] },
      versionTest,
    ).listsHeld,
  );
  t.false(
    compileLayer({ scope: 'all', document: checkPolicy({ mode: 'audit' })!.document, regimes: [] }, versionTest)
      .listsHeld,
  );
});

const sized = (length: number) => `mode: audit\n# ${'x'.repeat(length - 14)}`;
const digest = `sha256:${'a'.repeat(64)}`;

test('a malformed policy names the line and the key', (t) => {
  const cases: [text: string, message: RegExp][] = [
    ['mode: enforce\nminimumAge:\n  packages: soon\n', /^line 3: minimumAge\.packages: expected a duration/],
    ['advisories:\n  severity: bad\n', /^line 2: advisories\.severity: expected low, moderate, high or critical$/],
    ['mode: enforce\nfoo: 1\n', /^line 2: foo: there is no such key$/],
    [
      'rules:\n  - name: a\n    packages: ["*"]\n    verdict: maybe\n',
      /^line 4: rules\.0\.verdict: expected allow or deny$/,
    ],
    ['rules:\n  - name: a\n    verdict: deny\n', /^line 3: rules\.0\.verdict: needs packages, images/],
    [
      'rules:\n  - name: a\n    images: ["*"]\n    versions: "[1.0]"\n    verdict: deny\n',
      /^line 4: rules\.0\.versions: needs packages/,
    ],
    [
      'rules:\n  - { name: a, packages: ["*"], verdict: deny }\n  - { name: a, images: ["*"], verdict: deny }\n',
      /^line 3: rules\.1\.name: another rule/,
    ],
    [
      'rules:\n  - name: a\n    packages: ["*"]\n    tags: [b]\n    verdict: deny\n',
      /^line 4: rules\.0\.tags: needs images in the same rule$/,
    ],
    ...['-a', 'a-', 'A', 'a b', 'a'.repeat(101)].map((name): [string, RegExp] => [
      `rules: [{ name: "${name}", packages: ["*"], verdict: deny }]`,
      /rules\.0\.name: expected a name such as no-foo-2$/,
    ]),
    ...[`x${digest}`, `${digest}0`, digest.replace('256', '512'), `${digest.slice(0, -1)}G`].map(
      (each): [string, RegExp] => [
        `rules: [{ name: a, digests: ["${each}"], verdict: deny }]`,
        /rules\.0\.digests\.0: expected a digest such as sha256:…$/,
      ],
    ),
    ['knownBad:\n  lists:\n    - { name: a }\n', /^line 3: knownBad\.lists\.0: expected either url or file$/],
    ['knownBad:\n  lists: [{ name: a, url: "https://a.example", file: b }]\n', /expected either url or file$/],
    ['knownBad:\n  lists: [{ name: a, url: "file:///etc" }]\n', /lists\.0\.url: expected an http or https URL$/],
    ['knownBad:\n  lists: [{ name: a, file: b, refresh: 59s }]\n', /lists\.0\.refresh: expected 1m or more$/],
    ['knownBad:\n  lists: [{ name: a, file: b, refresh: 31d }]\n', /lists\.0\.refresh: expected 30d or less$/],
    ['knownBad:\n  lists: [{ name: a, url: "https:lists.example" }]\n', /lists\.0\.url: expected an http/],
    ['knownBad:\n  lists: [{ name: a, url: "xhttps://lists.example" }]\n', /lists\.0\.url: expected an http/],
    ['knownBad:\n  lists: [{ name: a, file: "" }]\n', /lists\.0\.file: /],
    ['knownBad:\n  lists: [{ name: a, file: b, ids: [] }]\n', /lists\.0\.ids: /],
    ['knownBad:\n  lists: [{ name: a, file: b, ids: [""] }]\n', /lists\.0\.ids\.0: /],
    ['knownBad:\n  lists: [{ name: a, file: b, except: [""] }]\n', /lists\.0\.except\.0: /],
    ['knownBad:\n  lists: [{ name: a, file: b, mode: off }]\n', /lists\.0\.mode: expected enforce or audit$/],
    [
      'knownBad:\n  lists: [{ name: a, file: b }, { name: a, file: c }]\n',
      /lists\.1\.name: there are two lists named a$/,
    ],
    ['knownBad:\n  verdict: allow\n', /^line 2: knownBad\.verdict: expected deny$/],
    ['mode: enforce\nmode: audit\n', /^line 2: /],
    ['mode: [enforce\n', /^line \d: /],
    ['a: &a [1]\nb: [*a, *a]\n', /aliases/],
    ['- 1\n', /^line 1: policy: /],
    ['? '.repeat(250), /^line 1: .*keys must be strings/],
    ['7', /^line 1: policy: /],
  ];
  for (const [text, message] of cases) t.throws(() => parsePolicy(text), { name: 'Invalid', message }, text);
  const { message: cut } = t.throws(() => parsePolicy(`? ${'x'.repeat(10_000)}\n: 1`), { name: 'Invalid' });
  t.is(cut.length, 1000);
  t.notThrows(() => parsePolicy(sized(65_536)));
  t.throws(() => parsePolicy(sized(65_537)), { message: 'The policy has more than 65536 characters.' });
});

const texts = (count: number, length: number) => Array.from({ length: count }, () => 'x'.repeat(length));
const listOf = (more: object = {}) => ({ name: 'a', file: 'b', ...more });
const manyLists = (count: number) => Array.from({ length: count }, (_, at) => listOf({ name: `l${at}` }));
const withLists = (...lists: object[]) => checkPolicy({ knownBad: { lists } })!;

test('a list of known bad content has defaults, and its name, texts and number have bounds', (t) => {
  const defaults = { refresh: 6 * 3_600_000, ids: ['MAL-*'], except: [], mode: 'enforce', allowPrivateNetwork: false };
  t.deepEqual(withLists(listOf()).document.knownBad.lists, [{ name: 'a', file: 'b', ...defaults }]);
  for (const more of [
    { name: 'a.b_c-0' },
    { name: `a${'-'.repeat(98)}0` },
    { refresh: '1m' },
    { refresh: '30d' },
    { file: undefined, url: 'http://lists.example' },
    { ids: texts(100, 100) },
    { except: texts(1000, 100) },
  ])
    t.is(withLists(listOf(more)).document.knownBad.lists.length, 1, JSON.stringify(more).slice(0, 100));
  for (const more of [
    { name: '' },
    { name: 'A' },
    { name: '-a' },
    { name: 'a-' },
    { name: 'a b' },
    { name: 'a'.repeat(101) },
    { ids: texts(101, 1) },
    { ids: texts(1, 101) },
    { except: texts(1001, 1) },
    { except: texts(1, 101) },
  ])
    t.throws(() => withLists(listOf(more)), { name: 'Invalid' }, JSON.stringify(more).slice(0, 100));
  t.is(withLists(...manyLists(20)).document.knownBad.lists.length, 20);
  t.throws(() => withLists(...manyLists(21)), { name: 'Invalid', message: /expected at most 20 lists/ });
});

test('the URL of a list has no user name or password, and the message does not show them', (t) => {
  const secret = 's3cr3t';
  for (const user of [`me:${secret}@`, `${secret}@`, `:${secret}@`]) {
    const text = `knownBad:\n  lists: [{ name: a, url: "https://${user}lists.test" }]\n`;
    const { message } = t.throws(() => parsePolicy(text), { name: 'Invalid' });
    t.regex(message, /a URL here cannot have a user name or password/);
    t.notRegex(message, new RegExp(secret));
  }
});

function compile(versions: string) {
  const rules = [{ name: 'a', packages: ['*'], versions, verdict: 'deny' }];
  return compileLayer({ scope: 'all', document: checkPolicy({ rules })!.document, regimes: [] }, versionTest);
}

test('a rule needs a range with brackets', (t) => {
  for (const text of ['2.0', '[2.0', '[*, 3.0)', 'x']) {
    t.throws(() => compile(text), { name: 'Invalid', message: /^rules\.0\.versions: expected a range/ }, text);
  }
  const { document, placeOf } = parsePolicy(
    'rules:\n  - name: a\n    packages: ["*"]\n    versions: "2.0"\n    verdict: deny\n',
  )!;
  t.throws(() => compileLayer({ scope: 'all', document, regimes: [] }, versionTest, placeOf), {
    message: /^line 4: rules\.0\.versions: expected a range/,
  });
  t.true(compile('[2.0]').rules[0]!.hasVersion('2.0.0'));
  t.false(compile('[2.0]').rules[0]!.hasVersion('2.0.1'));
});

const names = (count: number) => Array.from({ length: count }, (_, at) => `r${at}`);
const rule = (packages: readonly string[], name = 'a') => ({ name, packages, verdict: 'deny' });
const accepts = (rules: object[]) => checkPolicy({ rules }) !== null;

test('a policy has bounds', (t) => {
  t.true(accepts(names(200).map((name) => rule(['a'], name))));
  t.throws(() => accepts(names(201).map((name) => rule(['a'], name))), { name: 'Invalid' });
  t.true(accepts([rule(names(100))]));
  t.throws(() => accepts([rule(names(101))]), { name: 'Invalid' });
});
