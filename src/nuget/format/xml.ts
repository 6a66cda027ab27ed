import { XMLParser, XMLValidator } from 'fast-xml-parser';
import { DomainError } from '../../runtime/errors.ts';

/** An element: `@name` is an attribute, `#text` is the text, any other key has the child elements of that name. */
export type XmlElement = { readonly [name: string]: string | readonly XmlElement[] | undefined };

const predefined = new Map(Object.entries({ lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" }));
// XML 1.0 §2.2: control characters and two non-characters that a document must not contain.
// oxlint-disable-next-line no-control-regex
const forbidden = /[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]/;

/**
 * Elements, attributes and references together. To parse so many blocks the process for about 0.1 s. Real nuspecs have at
 * most some thousands.
 */
const maxMarkup = 20_000;

const declaration = /<!(?:DOCTYPE|ENTITY)/i;
/** Comments, CDATA sections and processing instructions, in which any text declares nothing. One without an end reaches to the end. */
const undeclaring = /<(?:!--(?:[^]*?-->|[^]*)|!\[CDATA\[(?:[^]*?\]\]>|[^]*)|\?(?:[^]*?\?>|[^]*))/g;

const parser = new XMLParser({
  ignoreAttributes: false,
  attributeNamePrefix: '@',
  parseTagValue: false,
  trimValues: false,
  parseAttributeValue: false,
  alwaysCreateTextNode: true,
  maxNestedTags: 32,
  isArray: (_name, _path, _leaf, isAttribute) => !isAttribute,
  // The parser's own decoder keeps character references and unknown entities as they are.
  entityDecoder: {
    decode: decodeReferences,
    setExternalEntities() {},
    addInputEntities() {},
    reset() {},
    setXmlVersion() {},
  },
});

/**
 * The root element of an XML document; its name must be `name`. Throws `PackageInvalid`, as NuGet does, for a document
 * that is not well-formed, and for a document type declaration: a nuspec does not need one, an entity bomb does.
 */
export function parseXml(bytes: Uint8Array, name: string): XmlElement {
  const text = decodeText(bytes);
  const isLong = markupIn(text) > maxMarkup;
  if (!isLong && declaration.test(text) && declaration.test(text.replaceAll(undeclaring, ' '))) {
    throw new DomainError(
      'PackageInvalid',
      'The nuspec declares a document type or entities. Remove the declaration: XML with one is refused.',
    );
  }
  let root: unknown;
  try {
    if (forbidden.test(text)) throw new Error('it contains a control character');
    if (isLong) throw new Error(`it has more than ${maxMarkup} elements and attributes`);
    const valid = XMLValidator.validate(text);
    if (valid !== true) throw new Error(`line ${valid.err.line}: ${valid.err.msg}`);
    root = (parser.parse(text) as Record<string, XmlElement[]>)[name]?.[0];
  } catch (error) {
    throw new DomainError('PackageInvalid', `The nuspec is not well-formed XML: ${(error as Error).message}`, {
      cause: error,
    });
  }
  if (root === undefined) throw new DomainError('PackageInvalid', `The nuspec's root element must be <${name}>.`);
  return root as XmlElement;
}

/** The child elements with this name. */
export function children(element: XmlElement | undefined, name: string): readonly XmlElement[] {
  const found = element?.[name];
  return typeof found === 'object' ? found : [];
}

/** An attribute's value; undefined if it is missing or blank. */
export function attribute(element: XmlElement | undefined, name: string): string | undefined {
  return value(element?.[`@${name}`]);
}

/** The text of the first child with this name; undefined if it is missing or blank. */
export function childText(element: XmlElement | undefined, name: string): string | undefined {
  return value(children(element, name)[0]?.['#text']);
}

function value(found: string | readonly XmlElement[] | undefined): string | undefined {
  return (typeof found === 'string' && found.trim()) || undefined;
}

/** An upper bound for the number of elements, attributes and references. */
function markupIn(text: string): number {
  let count = 0;
  for (let index = 0; index < text.length; index += 1) {
    const code = text.charCodeAt(index);
    if (code === 0x3c || code === 0x3d || code === 0x26) count += 1; // < = &
  }
  return count;
}

/** Decodes the document. XML 1.0 appendix F: the byte order mark decides, then the first bytes, then the label. */
function decodeText(bytes: Uint8Array): string {
  const [first, second] = bytes;
  const label = /^<\?xml[^>]{0,60}encoding=["']([\w.:-]{1,40})["']/.exec(
    Buffer.from(bytes.subarray(0, 200)).toString('latin1'),
  );
  let encoding = 'utf-8';
  if ((first === 0xff && second === 0xfe) || (first === 0x3c && second === 0)) encoding = 'utf-16le';
  else if ((first === 0xfe && second === 0xff) || (first === 0 && second === 0x3c)) encoding = 'utf-16be';
  // The label was read as ASCII, so it is wrong if it says UTF-16.
  else if (label && !/^utf-?16/i.test(label[1]!)) encoding = label[1]!;
  try {
    return new TextDecoder(encoding, { fatal: true }).decode(bytes);
  } catch (error) {
    throw new DomainError('PackageInvalid', `The nuspec is not ${encoding} text. Save it as UTF-8.`, { cause: error });
  }
}

/** XML 1.0 §4.1: without a document type there are only character references and five predefined entities. */
function decodeReferences(text: string): string {
  return text.replaceAll(/&([^;&\s]{0,10})(;?)/g, (reference, name: string, end: string) => {
    const digits = /^#(?:x([0-9a-f]+)|(\d+))$/i.exec(name);
    const code = digits ? Number.parseInt(digits[1] ?? digits[2]!, digits[1] ? 16 : 10) : undefined;
    const surrogate = code !== undefined && code >= 0xd800 && code <= 0xdfff;
    const character =
      code === undefined ? predefined.get(name) : code > 0x10ffff || surrogate ? undefined : String.fromCodePoint(code);
    if (character === undefined || end === '' || forbidden.test(character)) {
      throw new Error(`${reference} is not a valid reference; write & as &amp;`);
    }
    return character;
  });
}
