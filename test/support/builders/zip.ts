import { crc32, deflateRawSync } from 'node:zlib';

/** An entry of a hand-made zip. Set values are written unchanged, also wrong ones. */
export interface RawEntry {
  name: string;
  data?: Uint8Array | string;
  /** 8 deflates, 0 stores. Another number stores the data and is written as the method. */
  method?: number;
  /** General purpose bit flags; bit 0 is encryption. */
  flags?: number;
  /** The inflated size that the zip declares. */
  size?: number;
  compressedSize?: number;
  crc?: number;
  /** The name in the local header. */
  localName?: string;
  localSize?: number;
  /** Extra fields in the directory and in the local header, and the comment. */
  extra?: Buffer;
  localExtra?: Buffer;
  comment?: Buffer;
  /** Shares the data of the entry with this index instead of having its own. */
  sameDataAs?: number;
  offset?: number;
}

/** Wrong values for the end of central directory record. */
export interface RawZip {
  count?: number;
  directoryOffset?: number;
  /** Adds a 64-bit end record with these fields. */
  zip64?: { endOffset?: bigint; count?: bigint; directoryOffset?: bigint };
}

/** A zip that may have wrong values, which yazl refuses to write. APPNOTE.TXT §4.3. */
export function writeZip(entries: readonly RawEntry[], lies: RawZip = {}): Buffer {
  const locals: Buffer[] = [];
  const offsets: number[] = [];
  const directory: Buffer[] = [];
  let position = 0;
  for (const entry of entries) {
    const data = Buffer.from(entry.data ?? '');
    const method = entry.method ?? 8;
    const body = method === 8 ? deflateRawSync(data) : data;
    const name = Buffer.from(entry.name);
    const header = (size: number) => {
      const fields = Buffer.alloc(22);
      fields.writeUInt16LE(entry.flags ?? 0x800, 0);
      fields.writeUInt16LE(method, 2);
      fields.writeUInt32LE(entry.crc ?? crc32(data), 8);
      fields.writeUInt32LE(entry.compressedSize ?? body.length, 12);
      fields.writeUInt32LE(size, 16);
      return fields;
    };
    const size = entry.size ?? data.length;
    const offset = entry.offset ?? (entry.sameDataAs === undefined ? position : offsets[entry.sameDataAs]!);
    offsets.push(offset);
    if (entry.sameDataAs === undefined) {
      const localName = Buffer.from(entry.localName ?? entry.name);
      const fields = header(entry.localSize ?? size);
      fields.writeUInt16LE(localName.length, 20);
      const extra = entry.localExtra ?? Buffer.alloc(0);
      const local = Buffer.concat([bytes('PK\x03\x04\x14\x00'), fields, number(extra.length), localName, extra, body]);
      locals.push(local);
      position += local.length;
    }
    const fields = header(size);
    fields.writeUInt16LE(name.length, 20);
    const { extra = Buffer.alloc(0), comment = Buffer.alloc(0) } = entry;
    const rest = Buffer.alloc(16);
    rest.writeUInt16LE(extra.length, 0);
    rest.writeUInt16LE(comment.length, 2);
    rest.writeUInt32LE(offset, 12);
    directory.push(bytes('PK\x01\x02\x14\x00\x14\x00'), fields, rest, name, extra, comment);
  }
  const directoryBytes = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.write('PK\x05\x06', 'latin1');
  const count = lies.count ?? entries.length & 0xffff;
  end.writeUInt16LE(count, 8);
  end.writeUInt16LE(count, 10);
  end.writeUInt32LE(directoryBytes.length, 12);
  end.writeUInt32LE(lies.directoryOffset ?? position, 16);
  const tail = lies.zip64 ? zip64End(lies.zip64, position, directoryBytes.length, entries.length) : Buffer.alloc(0);
  return Buffer.concat([...locals, directoryBytes, tail, end]);
}

function zip64End(lies: NonNullable<RawZip['zip64']>, offset: number, length: number, count: number): Buffer {
  const end = Buffer.alloc(56);
  end.write('PK\x06\x06', 'latin1');
  end.writeBigUInt64LE(44n, 4);
  end.writeBigUInt64LE(lies.count ?? BigInt(count), 24);
  end.writeBigUInt64LE(lies.count ?? BigInt(count), 32);
  end.writeBigUInt64LE(BigInt(length), 40);
  end.writeBigUInt64LE(lies.directoryOffset ?? BigInt(offset), 48);
  const locator = Buffer.alloc(20);
  locator.write('PK\x06\x07', 'latin1');
  locator.writeBigUInt64LE(lies.endOffset ?? BigInt(offset + length), 8);
  locator.writeUInt32LE(1, 16);
  return Buffer.concat([end, locator]);
}

/** Extra fields of `length` bytes in all; each is without data, so there are as many as possible. */
export function emptyFields(length: number): Buffer {
  const fields = Buffer.alloc(length);
  for (let at = 0; at < length; at += 4) fields.writeUInt16LE(0xcafe, at);
  return fields;
}

function number(value: number): Buffer {
  return Buffer.from([value & 0xff, value >> 8]);
}

function bytes(text: string): Buffer {
  return Buffer.from(text, 'latin1');
}
