import test from 'ava';
import { attribute, childText, children, parseXml } from '../../../src/nuget/format/xml.ts';

const parse = (text: string | Buffer) => parseXml(Buffer.from(text as string), 'package');
/** The text of the element `a` in the root. */
const textOf = (text: string | Buffer) => childText(parse(text), 'a');
const invalid = (message: string | RegExp) => ({ name: 'PackageInvalid', message });
const malformed = (reason: string) => invalid(`The nuspec is not well-formed XML: ${reason}`);

test('elements, attributes and texts are read as they are written', (t) => {
  const root = parse(
    '<?xml version="1.0"?><!-- c --><package x=" 1 " y=""><a> one </a><b/><a z="2">two<c/></a><d> \n </d><e><![CDATA[<&>]]></e></package>',
  );
  t.deepEqual([attribute(root, 'x'), attribute(root, 'y'), attribute(root, 'z')], ['1', undefined, undefined]);
  t.is(attribute(undefined, 'x'), undefined);
  t.deepEqual(
    ['a', 'b', 'd', 'e', 'none'].map((name) => childText(root, name)),
    ['one', undefined, undefined, '<&>', undefined],
  );
  t.is(childText(undefined, 'a'), undefined);
  t.deepEqual(
    ['a', 'b', 'none', '@x', '#text'].map((name) => children(root, name).length),
    [2, 1, 0, 0, 0],
  );
  t.deepEqual(children(undefined, 'a'), []);
  t.is(attribute(children(root, 'a')[1], 'z'), '2');
  t.is(children(children(root, 'a')[1], 'c').length, 1);
});

test('texts that look like numbers stay texts, and pieces of a text keep the white space between them', (t) => {
  for (const text of ['1.10', '007', '0x1F', '1e3', 'true']) {
    t.is(textOf(`<package><a>${text}</a></package>`), text);
    t.is(attribute(parse(`<package x="${text}"/>`), 'x'), text);
  }
  t.is(textOf('<package><a>one <b/> two</a></package>'), 'one  two');
});

const deep = (depth: number) => `<package><a>x</a>${'<b>'.repeat(depth)}${'</b>'.repeat(depth)}</package>`;

test('elements are nested at most 32 deep below the root', (t) => {
  t.is(textOf(deep(32)), 'x');
  t.throws(() => parse(deep(33)), { name: 'PackageInvalid', message: /^The nuspec is not well-formed XML: / });
});

test('another root element is refused', (t) => {
  t.throws(() => parse('<other/>'), invalid("The nuspec's root element must be <package>."));
  t.throws(() => parse('no xml'), { name: 'PackageInvalid' });
});

const of = (text: string) => textOf(`<package><a>${text}</a></package>`);

test('references are decoded, and wrong ones refused', (t) => {
  t.is(of('&lt;&gt;&amp;&quot;&apos;'), '<>&"\'');
  t.is(of('&#65;&#x42;&#x4F;&#x1F427;&#x10ffff;&#55295;&#57344;'), `ABO🐧\u{10ffff}\ud7ff\ue000`);
  t.is(parse('<package x="&lt;&#65;"/>')['@x'], '<A');
  for (const reference of [
    '&x;',
    '&nbsp;',
    '&#x110000;',
    '&#55296;',
    '&#57343;',
    '&#0;',
    '&#8;',
    '&#xfffe;',
    '&#;',
    '&#x;',
    '&#1a;',
  ])
    t.throws(() => of(reference), { name: 'PackageInvalid' }, reference);
  for (const reference of ['&nbsp;', '&#x110000;', '&#55296;', '&#57343;', '&#8;', '&#xfffe;'])
    t.throws(() => of(reference), malformed(`${reference} is not a valid reference; write & as &amp;`), reference);
  for (const text of ['a & b', '&amp', '&']) t.throws(() => of(text), { name: 'PackageInvalid' }, text);
});

test('control characters are refused, and white space is not', (t) => {
  for (const character of ['\0', '\x08', '\x0b', '\x0c', '\x0e', '\x1f', '\ufffe', '\uffff'])
    t.throws(() => textOf(`<package><a>x${character}</a></package>`), malformed('it contains a control character'));
  t.is(textOf('<package><a>x\t\n\r y\x7f</a></package>')!.at(-1), '\x7f');
});

test('a declaration of a document type or entity is refused, outside of comments and the like', (t) => {
  const refused = invalid(
    'The nuspec declares a document type or entities. Remove the declaration: XML with one is refused.',
  );
  for (const text of ['<!DOCTYPE package>', '<!doctype x>', '<!ENTITY a "b">', '<!DOCTYPE p [<!ENTITY a "b">]>'])
    t.throws(() => textOf(`${text}<package><a>x</a></package>`), refused, text);
  t.throws(() => textOf('<!-- x --><!DOCTYPE p><!-- y --><package/>'), refused);
  for (const [open, close] of [
    ['<!--', '-->'],
    ['<![CDATA[', ']]>'],
    ['<?p', '?>'],
  ] as const) {
    const declares = `${open} <!ENTITY x> ${close}`;
    t.is(textOf(`<package><a>x${declares}</a></package>`)!.at(0), 'x', open);
    const between = `${open} x ${close}<!DOCTYPE p>${open} y ${close}`;
    t.throws(() => textOf(`<package><a>${between}</a></package>`), refused, open);
    const endless = `<package><a>x</a>${open} <!DOCTYPE x>`;
    t.throws(() => textOf(endless), { name: 'PackageInvalid', message: /^The nuspec is not well-formed XML: / }, open);
  }
  const long = `<!DOCTYPE p>${document(20_000)}`;
  t.throws(() => textOf(long), malformed('it has more than 20000 elements and attributes'));
});

const document = (count: number) => `<package><a>x</a>${'<b/>'.repeat(count)}</package>`;

test('a document has at most 20,000 elements, attributes and references', (t) => {
  const most = 20_000 - document(0).match(/</g)!.length;
  t.is(textOf(document(most)), 'x');
  t.throws(() => textOf(document(most + 1)), malformed('it has more than 20000 elements and attributes'));
  t.throws(() => textOf(`<package>${'&amp;'.repeat(20_000)}</package>`), { name: 'PackageInvalid' });
  t.throws(() => textOf(`<package>${'<b c="d"/>'.repeat(10_000)}</package>`), { name: 'PackageInvalid' });
});

const swapped = (text: string) => Buffer.from(text, 'utf16le').swap16();

test('the encoding is that of the byte order mark, of the first bytes, or of the label', (t) => {
  const plain = '<package><a>äß</a></package>';
  const label = (name: string) => `<?xml version="1.0" encoding="${name}"?>${plain}`;
  for (const bytes of [
    Buffer.from(plain),
    Buffer.from(`\ufeff${plain}`),
    Buffer.from(plain, 'utf16le'),
    Buffer.from(`\ufeff${plain}`, 'utf16le'),
    swapped(plain),
    swapped(`\ufeff${plain}`),
    Buffer.from(label('utf-8')),
    Buffer.from(label('iso-8859-1'), 'latin1'),
    Buffer.from(label('Windows-1252').replaceAll('"', "'"), 'latin1'),
    Buffer.from(label('utf-16')),
    Buffer.from(label('UTF16')),
  ])
    t.is(textOf(bytes), 'äß', bytes.subarray(0, 50).toString('latin1'));
  t.throws(() => textOf(Buffer.from(plain, 'latin1')), invalid('The nuspec is not utf-8 text. Save it as UTF-8.'));
  t.throws(() => textOf(label('unknown-9')), invalid('The nuspec is not unknown-9 text. Save it as UTF-8.'));
  t.throws(
    () => textOf(Buffer.from([0xff, 0xfe, 0x3c])),
    invalid('The nuspec is not utf-16le text. Save it as UTF-8.'),
  );
});
