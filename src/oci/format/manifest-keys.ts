// Keys of manifests that clients read in different ways. Go ignores the letter case of a key and takes the last of several;
// others compare exactly. So one document could be one image for the registry, and another one for the client.

/** The fields that the image-spec names, by the kind of object. */
const fieldNames = {
  manifest: 'schemaVersion mediaType artifactType config layers manifests subject annotations',
  descriptor: 'mediaType digest size urls annotations data artifactType platform',
  platform: 'architecture os os.version os.features variant features',
};

type Kind = keyof typeof fieldNames;

/** The kind of the objects in a field. In all other fields, keys are free: annotations are case-sensitive. */
const kindIn: Record<Kind, Record<string, Kind>> = {
  manifest: { config: 'descriptor', layers: 'descriptor', manifests: 'descriptor', subject: 'descriptor' },
  descriptor: { platform: 'platform' },
  platform: {},
};

/** The exact name of each field, by its folded name. */
const fields: Record<Kind, ReadonlyMap<string, string>> = {
  manifest: byFoldedName(fieldNames.manifest),
  descriptor: byFoldedName(fieldNames.descriptor),
  platform: byFoldedName(fieldNames.platform),
};

/** An object whose keys are checked, or a list of such objects. */
interface Open {
  /** Undefined for a list. */
  kind: Kind | undefined;
  /** The fields that were seen. */
  seen: Set<string>;
  /** The kind of the next value; undefined if its keys are free. */
  next: Kind | undefined;
  isKey: boolean;
}

/**
 * The first key that repeats a field of the image-spec, or is one in another letter case; undefined if there is none.
 * `text` is valid JSON with an object. Reads it once; what is nested inside of free keys takes no memory.
 */
export function ambiguousKey(text: string): string | undefined {
  const open: Open[] = [];
  let top: Open = { kind: undefined, seen: new Set(), next: 'manifest', isKey: false };
  let freeDepth = 0;
  for (let index = 0; index < text.length; index += 1) {
    const mark = text[index];
    if (mark === '"') {
      const end = endOfString(text, index);
      if (top.isKey && top.kind) {
        const key = JSON.parse(text.slice(index, end + 1)) as string;
        const field = fields[top.kind].get(fold(key));
        if (field !== undefined && (field !== key || top.seen.has(key))) return key;
        if (field !== undefined) top.seen.add(field);
        top.next = field === undefined ? undefined : kindIn[top.kind][field];
        top.isKey = false;
      }
      index = end;
    } else if (mark === '{' || mark === '[') {
      const isObject = mark === '{';
      if (freeDepth > 0 || top.next === undefined || (!isObject && top.kind === undefined)) {
        freeDepth += 1;
        continue;
      }
      open.push(top);
      top = { kind: isObject ? top.next : undefined, seen: new Set(), next: top.next, isKey: isObject };
      if (isObject) top.next = undefined;
    } else if (mark === '}' || mark === ']') {
      if (freeDepth > 0) freeDepth -= 1;
      else top = open.pop()!;
    } else if (mark === ',' && freeDepth === 0) {
      top.isKey = top.kind !== undefined;
    }
  }
  return undefined;
}

/** The index of the quote that ends the string which starts at `start`. */
function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); ; end = text.indexOf('"', end + 1)) {
    let escapes = 0;
    while (text[end - 1 - escapes] === '\\') escapes += 1;
    if (escapes % 2 === 0) return end;
  }
}

/** A key as Go compares it (`encoding/json`): without letter case, and with Unicode's other forms of `s` and `k`. */
function fold(key: string): string {
  return key.toUpperCase().toLowerCase();
}

function byFoldedName(names: string): Map<string, string> {
  return new Map(names.split(' ').map((name) => [fold(name), name]));
}
