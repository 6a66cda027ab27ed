import { globSync, readFileSync } from 'node:fs';
import test from 'ava';
import * as fc from 'fast-check';
import { DomainError, isDomainError } from '../../../src/runtime/errors.ts';
import { isPackageId, maxNuspecBytes, parseNuspec, type Nuspec } from '../../../src/nuget/format/nuspec.ts';
import { makeNuspec, type NuspecOptions } from '../../support/builders/nupkg.ts';

function parse(text: string): Nuspec {
  return parseNuspec(Buffer.from(text));
}

function made(options: NuspecOptions): Nuspec {
  return parse(makeNuspec(options));
}

/** A nuspec whose metadata starts with `xml`. */
function holding(xml: string): string {
  return makeNuspec().replace('<id>', `${xml}<id>`);
}

test('everything that a feed shows is read', (t) => {
  const nuspec = parse(`\ufeff<?xml version="1.0"?>
<package xmlns="http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd">
  <metadata minClientVersion="2.12">
    <id>Some.Package</id>
    <version>1.02.0-Beta.1+sha</version>
    <title>Some &amp; more</title>
    <authors>Ann, Bob</authors>
    <owners>Carl</owners>
    <description><![CDATA[<b>bold</b> &amp;]]> &#x2014; line&#13;&#10;two</description>
    <summary>  short  </summary>
    <tags>one, two;three
      four</tags>
    <projectUrl>https://example.org/p</projectUrl>
    <iconUrl>http://example.org/i.png</iconUrl>
    <licenseUrl>https://licenses.nuget.org/MIT</licenseUrl>
    <icon>images\\icon.png</icon>
    <readme>docs/README.md</readme>
    <license type="expression">MIT</license>
    <requireLicenseAcceptance>true</requireLicenseAcceptance>
    <developmentDependency>True</developmentDependency>
    <releaseNotes>007</releaseNotes>
    <copyright>© &quot;us&quot; &amp; &apos;them&apos; &gt; &lt;</copyright>
    <language>en-US</language>
    <repository type="git" url="https://example.org/r.git" commit="abc" branch="main" />
    <packageTypes><packageType name="DotnetTool" /><packageType name="Template" version="1.0" /></packageTypes>
    <frameworkReferences><group targetFramework="net8.0" /></frameworkReferences>
    <dependencies>
      <group targetFramework="net8.0" />
      <group>
        <dependency id="A" version="1.0" exclude="Build" />
        <dependency id="B" />
      </group>
    </dependencies>
  </metadata>
</package>`);
  t.deepEqual(nuspec, {
    id: 'Some.Package',
    version: '1.02.0-Beta.1+sha',
    semVer2: true,
    title: 'Some & more',
    authors: 'Ann, Bob',
    owners: 'Carl',
    description: '<b>bold</b> &amp; — line\r\ntwo',
    summary: 'short',
    tags: ['one', 'two', 'three', 'four'],
    projectUrl: 'https://example.org/p',
    iconUrl: 'http://example.org/i.png',
    licenseUrl: 'https://licenses.nuget.org/MIT',
    icon: 'images\\icon.png',
    readme: 'docs/README.md',
    license: { type: 'expression', value: 'MIT' },
    requireLicenseAcceptance: true,
    developmentDependency: true,
    minClientVersion: '2.12',
    releaseNotes: '007',
    copyright: `© "us" & 'them' > <`,
    language: 'en-US',
    repository: { type: 'git', url: 'https://example.org/r.git', commit: 'abc', branch: 'main' },
    packageTypes: [
      { name: 'DotnetTool', version: undefined },
      { name: 'Template', version: '1.0' },
    ],
    dependencyGroups: [
      { targetFramework: 'net8.0', dependencies: [] },
      {
        targetFramework: undefined,
        dependencies: [
          { id: 'A', range: '[1.0.0, )' },
          { id: 'B', range: '(, )' },
        ],
      },
    ],
  });
});

test('missing elements have defaults', (t) => {
  const nuspec = parse('<package><metadata><id>a</id><version>1</version></metadata></package>');
  t.is(nuspec.title, undefined);
  t.deepEqual(nuspec.tags, []);
  t.deepEqual(nuspec.packageTypes, [{ name: 'Dependency' }]);
  t.deepEqual(nuspec.dependencyGroups, []);
  t.false(nuspec.requireLicenseAcceptance || nuspec.developmentDependency || nuspec.semVer2);
});

const licenseOf = (type: string) => parse(holding(`<license type="${type}">MIT</license>`)).license;

test('a nuspec may have 1 MiB and no more, tags may have many separators, and a message shows the start of a long text', (t) => {
  const longest = makeNuspec({ description: 'a' });
  const filled = longest.replace('>a<', `>${'a'.repeat(maxNuspecBytes - Buffer.byteLength(longest) + 1)}<`);
  t.is(Buffer.byteLength(filled), maxNuspecBytes);
  t.is(parse(filled).id, 'Made.Package');
  t.throws(() => parse(`${filled} `), { message: /larger than 1048576 bytes/ });
  t.deepEqual(made({ tags: `a${' ,;'.repeat(1000)}b` }).tags, ['a', 'b']);
  const error = t.throws(() => made({ minClientVersion: 'x'.repeat(500) }));
  t.is(error.message, `minClientVersion '${'x'.repeat(120)}' is not a version. Correct or remove it.`);
  const letters = t.throws(() => made({ id: 'a b' }));
  t.regex(letters.message, /^The package id 'a b' is not valid\. Use at most 100 letters, digits/);
});

test('a license of an unknown type is none', (t) => {
  t.deepEqual(['file', 'Expression', 'other'].map(licenseOf), [
    { type: 'file', value: 'MIT' },
    { type: 'expression', value: 'MIT' },
    undefined,
  ]);
});

test('a flat list of dependencies is one group of any framework', (t) => {
  t.deepEqual(made({ dependencies: [{ id: 'A', version: '[1.0]' }] }).dependencyGroups, [
    { targetFramework: undefined, dependencies: [{ id: 'A', range: '[1.0.0, 1.0.0]' }] },
  ]);
  const both = { dependencies: [{ id: 'A' }], dependencyGroups: [{ targetFramework: 'net8.0', dependencies: [] }] };
  t.deepEqual(made(both).dependencyGroups, both.dependencyGroups, 'beside a group it is not read');
});

for (const date of ['2010/07', '2011/08', '2011/10', '2012/06', '2013/01', '2013/05']) {
  test(`namespace ${date} is known, on either element`, (t) => {
    const namespace = `http://schemas.microsoft.com/packaging/${date}/nuspec.xsd`;
    t.is(made({ id: 'A', namespace }).id, 'A');
    t.is(made({ id: 'A', namespace: ` ${namespace} ` }).id, 'A');
    t.is(
      parse(makeNuspec({ namespace: '' }).replace('<metadata', `<metadata xmlns="${namespace}"`)).id,
      'Made.Package',
    );
  });
}

for (const [encoding, bytes] of [
  ['UTF-8', (text: string) => Buffer.from(text)],
  ['UTF-8 with a mark', (text: string) => Buffer.from(`\ufeff${text}`)],
  ['UTF-16LE with a mark', (text: string) => Buffer.from(`\ufeff${text}`, 'utf16le')],
  ['UTF-16BE with a mark', (text: string) => Buffer.from(`\ufeff${text}`, 'utf16le').swap16()],
  ['UTF-16LE', (text: string) => Buffer.from(text, 'utf16le')],
  ['UTF-16BE', (text: string) => Buffer.from(text, 'utf16le').swap16()],
  ['UTF-8 labelled UTF16', (text: string) => Buffer.from(text.replace('utf-8', 'UTF16'))],
  ['UTF-8 labelled UTF-16', (text: string) => Buffer.from(text.replace('utf-8', 'utf-16'))],
  ['Latin-1', (text: string) => Buffer.from(text.replace('utf-8', 'iso-8859-1'), 'latin1')],
] as const) {
  test(`${encoding} is read`, (t) => t.is(parseNuspec(bytes(makeNuspec({ title: 'Größe' }))).title, 'Größe'));
}

for (const [reason, text, message] of [
  ['no XML', 'hello', /well-formed/],
  ['nothing', '', /well-formed/],
  ['unclosed XML', makeNuspec().slice(0, -5), /well-formed/],
  ['crossed tags', holding('<title>a</b>'), /well-formed/],
  ['two roots', makeNuspec() + makeNuspec().slice(39), /well-formed/],
  ['a control character', holding('<title>\u0001</title>'), /control/],
  ['a reference to no character', holding('<title>&#0;</title>'), /is not a valid reference/],
  ['a reference to a name of JavaScript', holding('<title>&toString;</title>'), /is not a valid reference/],
  ['a reference to half a character', holding('<title>&#xD800;</title>'), /is not a valid reference/],
  ['a reference to the other half', holding('<title>&#xDFFF;</title>'), /is not a valid reference/],
  ['a reference beyond all characters', holding('<title>&#x110000;</title>'), /is not a valid reference/],
  ['a reference without its end', holding('<repository branch="a&lt b" />'), /is not a valid reference/],
  ['an unknown entity', holding('<title>&nbsp;</title>'), /&nbsp;/],
  ['a bare ampersand', holding('<repository url="a&b" />'), /&amp;/],
  ['a reserved name', holding('<__proto__>x</__proto__>'), /well-formed/],
  ['deep nesting', holding('<a>'.repeat(1000) + '</a>'.repeat(1000)), /well-formed/],
  ['another root', '<nuspec><metadata/></nuspec>', /root element/],
  ['no metadata', '<package/>', /no <metadata>/],
  ['an unknown namespace', makeNuspec({ namespace: 'http://example.org' }), /namespace/],
  [
    'a namespace that ends as a known one',
    makeNuspec({ namespace: 'urn:http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd' }),
    /namespace/,
  ],
  [
    'a namespace that begins as a known one',
    makeNuspec({ namespace: 'http://schemas.microsoft.com/packaging/2013/05/nuspec.xsd2' }),
    /namespace/,
  ],
  [
    'an unknown namespace of the metadata',
    makeNuspec({ namespace: '' }).replace('<metadata', '<metadata xmlns="http://example.org"'),
    /namespace/,
  ],
  ['no id', makeNuspec({ id: '' }), /no <id>/],
  ['two ids', holding('<id>Other</id>'), /more than one <id>/],
  ['no version', makeNuspec({ version: ' ' }), /no <version>/],
  ['two versions', holding('<version>2.0</version>'), /more than one <version>/],
  ['an id with an element', makeNuspec().replace('</id>', '<b>More</b></id>'), /<id> of the nuspec has elements/],
  ['an id of no namespace', makeNuspec().replace('<id>', '<id xmlns="">'), /namespace of its own/],
  ['an id of another namespace', makeNuspec().replace('<id>', '<id xmlns="urn:other">'), /namespace of its own/],
  [
    'a version with an element',
    makeNuspec().replace('</version>', '<b>.1</b></version>'),
    /<version> of the nuspec has/,
  ],
  ['a further id with a prefix', holding('<n:id xmlns:n="urn:other">Other</n:id>'), /<id> with a prefix/],
  [
    'further metadata with a prefix',
    makeNuspec().replace('<metadata>', '<n:metadata xmlns:n="urn:other"><id>Other</id></n:metadata><metadata>'),
    /<metadata> with a prefix/,
  ],
  ['a bad id', makeNuspec({ id: '../evil' }), /package id '..\/evil'/],
  ['a long id', makeNuspec({ id: 'a'.repeat(101) }), /at most 100/],
  ['a bad version', makeNuspec({ version: '1.0.0.0.0' }), /package version '1.0.0.0.0'/],
  ['a bad minClientVersion', makeNuspec({ minClientVersion: 'new' }), /minClientVersion/],
  ['a dependency without id', holding('<dependencies><dependency/></dependencies>'), /dependency's id/],
  ['a bad dependency id', makeNuspec({ dependencies: [{ id: 'a b' }] }), /dependency's id 'a b'/],
  ['a bad range', makeNuspec({ dependencies: [{ id: 'A', version: '[2,1]' }] }), /range '\[2,1\]' of the dependency A/],
  ['a nameless package type', holding('<packageTypes><packageType/></packageTypes>'), /packageType/],
  ['too much text', makeNuspec({ description: 'a'.repeat(maxNuspecBytes) }), /larger than/],
] as const) {
  test(`${reason} is refused`, (t) => {
    const error = t.throws(() => parse(text), { instanceOf: DomainError });
    t.is(error.name, 'PackageInvalid');
    t.regex(error.message, message);
  });
}

test('bytes that are not text in the declared encoding are refused', (t) => {
  for (const bytes of [
    Buffer.from(makeNuspec({ title: 'é' }), 'latin1'),
    Buffer.from([0xff, 0xfe, 0x00, 0xd8]),
    Buffer.from(makeNuspec().replace('utf-8', 'x-none')),
  ]) {
    t.throws(() => parseNuspec(bytes), { name: 'PackageInvalid' });
  }
});

test('entity bombs are refused without being expanded', (t) => {
  const levels = Array.from({ length: 12 }, (_, i) => `<!ENTITY e${i + 1} "${`&e${i};`.repeat(10)}">`).join('');
  for (const declaration of [
    `<!DOCTYPE package [<!ENTITY e0 "ha">${levels}]>`,
    '<!DOCTYPE package SYSTEM "file:///etc/passwd">',
    '<!doctype package>',
  ]) {
    const text = makeNuspec().replace('<package', `${declaration}<package`).replace('About', '&e12;');
    for (const bytes of [Buffer.from(text), Buffer.from(`\ufeff${text}`, 'utf16le')]) {
      const error = t.throws(() => parseNuspec(bytes), { name: 'PackageInvalid' });
      t.regex(error.message, /document type/);
    }
  }
});

test('text of a comment or a CDATA section declares no document type, and hides none', (t) => {
  const [comment, section] = ['<!-- <!DOCTYPE a> -->', '<![CDATA[<!DOCTYPE html>]]>'];
  const read = parse(
    holding(`${comment}<releaseNotes>${section}</releaseNotes>`).replace('<package', `${comment}<package`),
  );
  t.is(read.releaseNotes, '<!DOCTYPE html>');
  for (const before of ['<!-- a -->', '<!-- <![CDATA[ -->', '<?a <!-- ?>', '<!----><?a?>', '<![CDATA[ab]]>']) {
    const text = makeNuspec().replace('<package', `${before}<!DOCTYPE package>${before}<package`);
    t.throws(() => parse(text), { name: 'PackageInvalid', message: /document type/ }, before);
  }
  for (const open of ['<!--', '<![CDATA[', '<?a'])
    t.throws(() => parse(`${open.repeat(50_000)}<!DOCTYPE a>`), { name: 'PackageInvalid' }, open);
});

test('20,000 elements, attributes and references are read, and not one more', (t) => {
  for (const [start, one, end] of [
    ['<title>', '&lt;', '</title>'],
    ['<b>', '<a/>', '</b>'],
    ['<a', (at: number) => ` a${at}=""`, '/>'],
  ] as const) {
    const holdingSo = (count: number) =>
      holding(
        start + Array.from({ length: count }, (_, at) => (typeof one === 'string' ? one : one(at))).join('') + end,
      );
    const most = 20_000 - holdingSo(0).match(/[<=&]/g)!.length;
    t.notThrows(() => parse(holdingSo(most)), end);
    t.throws(() => parse(holdingSo(most + 1)), { message: /more than 20000 elements and attributes/ }, end);
  }
});

test('ids follow NuGet’s grammar, in ASCII for pushed packages', (t) => {
  for (const id of ['a', 'A_b', '_', 'a.b-c', '1.2', 'a'.repeat(100)]) t.true(isPackageId(id, { asciiOnly: true }), id);
  for (const id of ['', '.a', 'a.', 'a..b', 'a.-b', 'a b', 'a/b', 'a\\b', 'a\n', 'a'.repeat(101)])
    t.false(isPackageId(id), id);
  t.true(isPackageId('Größe.Пакет'));
  t.false(isPackageId('Größe', { asciiOnly: true }));
  t.is(made({ id: 'Größe' }).id, 'Größe');
  t.throws(() => parseNuspec(Buffer.from(makeNuspec({ id: 'Größe' })), { asciiOnly: true }), { message: /ASCII/ });
});

test('only http and https links are kept', (t) => {
  for (const url of ['javascript:alert(1)', 'file:///etc/passwd', 'data:text/html,x', '//example.org', 'example.org']) {
    const nuspec = made({ projectUrl: url, iconUrl: url, repository: { type: 'git', url } });
    t.deepEqual([nuspec.projectUrl, nuspec.iconUrl, nuspec.repository?.url], [undefined, undefined, undefined], url);
  }
  for (const url of ['http://example.org/a', 'https://example.org/a']) {
    const nuspec = made({ projectUrl: url, iconUrl: url, repository: { type: 'git', url } });
    t.deepEqual([nuspec.projectUrl, nuspec.iconUrl, nuspec.repository?.url], [url, url, url]);
  }
});

test('of a package that clients use already, what they ignore is not refused', (t) => {
  const dependencies = [{ id: 'A', version: '$version$' }, { id: 'a b' }, { id: 'B', version: '1.0' }];
  const bytes = Buffer.from(makeNuspec({ namespace: 'http://example.org', dependencies }));
  const { dependencyGroups } = parseNuspec(bytes, { isPublished: true });
  const read = [
    { id: 'A', range: '(, )' },
    { id: 'B', range: '[1.0.0, )' },
  ];
  t.deepEqual(dependencyGroups, [{ targetFramework: undefined, dependencies: read }]);
});

test('a SemVer 2.0.0 bound of any dependency counts', (t) => {
  for (const [version, semVer2] of [
    ['1.0', false],
    ['[1.0-a,2.0)', false],
    ['[1.0-a.b,2.0)', true],
    ['(,2.0+m]', true],
  ] as const) {
    t.is(made({ dependencies: [{ id: 'A' }, { id: 'B', version }] }).semVer2, semVer2, version);
    t.is(made({ dependencies: [{ id: 'B', version }, { id: 'A' }] }).semVer2, semVer2, version);
  }
});

test('any text is the same after it was written and read', (t) => {
  // Except carriage returns: XML reads them as line feeds.
  const text = fc.string({ unit: 'grapheme', maxLength: 60 }).map((s) => s.replaceAll('\r', '').trim());
  fc.assert(
    fc.property(text, (title) => (made({ title }).title ?? '') === title),
    { numRuns: 2000 },
  );
  t.pass();
});

test('damaged nuspecs are read or refused with PackageInvalid', (t) => {
  const sound = Buffer.from(makeNuspec({ dependencies: [{ id: 'A', version: '1.0' }], tags: 'a b', title: '&<é' }));
  const damage = fc.array(fc.tuple(fc.nat({ max: sound.length - 1 }), fc.nat({ max: 255 })), {
    minLength: 1,
    maxLength: 4,
  });
  fc.assert(
    fc.property(damage, fc.nat({ max: sound.length }), fc.boolean(), (flips, length, cut) => {
      const bytes = Buffer.from(sound);
      for (const [at, value] of flips) bytes[at] = value;
      try {
        parseNuspec(cut ? bytes.subarray(0, length) : bytes);
        return true;
      } catch (error) {
        return isDomainError(error, 'PackageInvalid');
      }
    }),
    { numRuns: 5000 },
  );
  t.pass();
});

/** Packages made by other tools, if the variable of NuGet names a folder: `<id>/<version>/<id>.nuspec`. */
const realPackages = process.env.NUGET_PACKAGES;

test('id and version of a nuspec are those of its folder: made nuspecs, and real ones if there are any', (t) => {
  const made = [
    ['made.plain', '1.0.0'],
    ['made.pre', '2.1.0-beta.1'],
    ['made.four', '1.2.3.4'],
  ].map(([id = '', version = '']) => ({ id, version, bytes: Buffer.from(makeNuspec({ id, version })) }));
  const real = (realPackages === undefined ? [] : globSync(`${realPackages}/*/*/*.nuspec`)).map((path) => {
    const [id = '', version = ''] = path.split('/').slice(-3);
    return { id, version, bytes: readFileSync(path) };
  });
  const all = [...made, ...real];
  const read = all.map(({ bytes }) => parseNuspec(bytes, { asciiOnly: true }));
  t.deepEqual(
    read.map(({ id, version }) => [id.toLowerCase(), version.toLowerCase()]),
    all.map(({ id, version }) => [id, version]),
  );
  t.true(read.every(({ authors, description }) => authors && description));
});
