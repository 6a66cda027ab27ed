import { createHash, randomUUID } from 'node:crypto';
import type { IncomingMessage, ServerResponse } from 'node:http';
import { checksumHeaders, isKnownChecksum } from './checksums.ts';
import { S3Refusal } from './refusal.ts';
import type { FakeS3, S3Fault, S3Request, Stored, UploadedPart } from '../s3.ts';

// What the fake S3 does with a request whose signature and body it has checked.

/** Bounds of S3, "Amazon S3 multipart upload limits" and "Object key names". */
const leastPart = 5 * 2 ** 20;
const mostPart = 5 * 2 ** 30;
const mostParts = 10_000;
const mostKeyBytes = 1024;

/** A request, and what it leads to. */
export interface Operation extends S3Request {
  request: IncomingMessage;
  body: Buffer;
  response: ServerResponse;
  fault: S3Fault | undefined;
}

/** Throws a refusal for a request that a real server refuses whatever its body is. */
export function checkRequest({ method, key }: S3Request, { headers }: IncomingMessage): void {
  if (Buffer.byteLength(key) > mostKeyBytes) throw new S3Refusal(400, 'KeyTooLongError');
  if (method !== 'PUT') return;
  // A copy has no body.
  if (headers['content-length'] === undefined) throw new S3Refusal(411, 'MissingContentLength');
  if (Number(headers['content-length']) > mostPart) throw new S3Refusal(400, 'EntityTooLarge');
}

export function perform(s3: FakeS3, operation: Operation): void {
  const { method, key, query, request } = operation;
  checkHeaders(request, method);
  if (key === '') ofBucket(s3, operation);
  else if (query.has('uploadId') || query.has('uploads')) ofUpload(s3, operation);
  else if (method === 'PUT') put(s3, operation);
  else if (method === 'DELETE') {
    s3.objects.delete(key);
    operation.response.writeHead(204).end();
  } else if (method === 'GET' || method === 'HEAD') {
    const found = s3.objects.get(key);
    if (!found) throw new S3Refusal(404, 'NoSuchKey');
    send(found, operation);
  } else throw new S3Refusal(405, 'MethodNotAllowed');
}

/** Refuses what the fake cannot do, so that no test believes that it was done. */
function checkHeaders({ headers }: IncomingMessage, method: string): void {
  const conditions = new Set(['if-match', 'if-modified-since', 'if-unmodified-since']);
  if (method !== 'PUT') conditions.add('if-none-match');
  const isUnknown = (name: string) =>
    conditions.has(name) ||
    name === 'x-amz-trailer' ||
    name === 'x-amz-sdk-checksum-algorithm' ||
    (name.startsWith('x-amz-checksum-') && !isKnownChecksum(name));
  if (Object.keys(headers).some(isUnknown)) throw new S3Refusal(501, 'NotImplemented');
}

function ofBucket(s3: FakeS3, { method, query, response }: Operation): void {
  if (method === 'HEAD') return void response.writeHead(200).end();
  if (method !== 'GET') throw new S3Refusal(405, 'MethodNotAllowed');
  if (query.has('uploads')) return answer(response, listUploads(s3, query));
  if (query.get('list-type') !== '2' || query.has('delimiter') || query.has('start-after'))
    throw new S3Refusal(501, 'NotImplemented');
  answer(response, list(s3, query));
}

function put(s3: FakeS3, operation: Operation): void {
  const { request, body, response, fault } = operation;
  const source = request.headers['x-amz-copy-source'];
  checkCondition(s3, operation);
  if (source !== undefined) return copy(s3, operation, String(source));
  const bytes = storedOf(body, fault);
  response.writeHead(200, { ETag: store(s3, operation, bytes), ...checksumHeaders(request.headers, bytes) }).end();
}

function storedOf(body: Buffer, fault: S3Fault | undefined): Buffer {
  if (fault === 'store half') return body.subarray(0, body.length / 2);
  return fault === 'store wrong bytes' ? damaged(body) : body;
}

/** The same with another byte in the middle. */
export function damaged(bytes: Buffer): Buffer {
  const copy = Buffer.from(bytes);
  copy[copy.length >> 1]! ^= 1;
  return copy;
}

/** `If-None-Match: *`: only if there is no object. Other values mean nothing for a write. */
function checkCondition({ objects }: FakeS3, { key, request }: Operation): void {
  const condition = request.headers['if-none-match'];
  if (condition === undefined) return;
  if (condition !== '*') throw new S3Refusal(501, 'NotImplemented');
  if (objects.has(key)) throw new S3Refusal(412, 'PreconditionFailed');
}

function copy(s3: FakeS3, operation: Operation, source: string): void {
  const [bucket, ...segments] = decodeURIComponent(source.replace(/^\//, '')).split('/');
  if (bucket !== s3.bucket) throw new S3Refusal(404, 'NoSuchBucket');
  // Without other metadata, a copy to itself changes nothing.
  if (segments.join('/') === operation.key) throw new S3Refusal(400, 'InvalidRequest');
  const from = s3.objects.get(segments.join('/'));
  if (!from) throw new S3Refusal(404, 'NoSuchKey');
  answer(operation.response, `<CopyObjectResult><ETag>${store(s3, operation, from.bytes)}</ETag></CopyObjectResult>`);
}

function store({ objects }: FakeS3, { key }: Operation, bytes: Buffer, etag = `"${md5(bytes)}"`): string {
  objects.set(key, { bytes, modified: new Date(), etag });
  return etag;
}

function ofUpload(s3: FakeS3, operation: Operation): void {
  const { method, key, query, body, response, fault } = operation;
  const { uploads } = s3;
  const id = query.get('uploadId');
  if (id === null) {
    if (method !== 'POST') throw new S3Refusal(405, 'MethodNotAllowed');
    const began = randomUUID();
    uploads.set(began, { key, initiated: new Date(), parts: new Map() });
    const names = `<Bucket>${s3.bucket}</Bucket><Key>${escaped(key)}</Key><UploadId>${began}</UploadId>`;
    return answer(response, `<InitiateMultipartUploadResult>${names}</InitiateMultipartUploadResult>`);
  }
  const upload = uploads.get(id);
  if (upload?.key !== key) throw new S3Refusal(404, 'NoSuchUpload');
  if (method === 'DELETE') {
    uploads.delete(id);
    return void response.writeHead(204).end();
  }
  if (method === 'PUT') {
    const part = query.get('partNumber') ?? '';
    if (!/^\d{1,6}$/.test(part) || Number(part) < 1 || Number(part) > mostParts)
      throw new S3Refusal(400, 'InvalidArgument');
    const bytes = storedOf(body, fault);
    const tag = md5(bytes);
    upload.parts.set(Number(part), { bytes, tag });
    const headers = fault === 'no tag' ? {} : { ETag: `"${tag}"` };
    return void response.writeHead(200, headers).end();
  }
  if (method !== 'POST') throw new S3Refusal(501, 'NotImplemented');
  checkCondition(s3, operation);
  const parts = partsOf(body.toString(), upload.parts);
  const tag = createHash('md5').update(Buffer.concat(parts.map((each) => Buffer.from(each.tag, 'hex'))));
  uploads.delete(id);
  const bytes = storedOf(Buffer.concat(parts.map((each) => each.bytes)), fault);
  const etag = store(s3, operation, bytes, `"${tag.digest('hex')}-${parts.length}"`);
  answer(response, `<CompleteMultipartUploadResult><ETag>${escaped(etag)}</ETag></CompleteMultipartUploadResult>`);
}

/** The parts that a request names to complete an upload. */
function partsOf(text: string, uploaded: ReadonlyMap<number, UploadedPart>): UploadedPart[] {
  const named = [...text.matchAll(/<Part>(.*?)<\/Part>/gs)].map(([, part]) => ({
    number: Number(/<PartNumber>(\d+)<\/PartNumber>/.exec(part!)?.[1]),
    tag: /<ETag>(.*?)<\/ETag>/.exec(part!)?.[1]?.replaceAll(/&quot;|"/g, ''),
  }));
  if (named.length === 0 || named.length > mostParts) throw new S3Refusal(400, 'MalformedXML');
  if (named.some(({ number }, index) => index > 0 && number <= named[index - 1]!.number))
    throw new S3Refusal(400, 'InvalidPartOrder');
  const parts = named.map(({ number, tag }) => {
    const found = uploaded.get(number);
    if (!found || found.tag !== tag) throw new S3Refusal(400, 'InvalidPart');
    return found;
  });
  if (parts.slice(0, -1).some(({ bytes }) => bytes.length < leastPart)) throw new S3Refusal(400, 'EntityTooSmall');
  return parts;
}

function send({ bytes, etag, modified }: Stored, { method, request, response, fault }: Operation): void {
  const headers: Record<string, string | number> = { ETag: etag, 'Last-Modified': modified.toUTCString() };
  if (method === 'HEAD') return void response.writeHead(200, { ...headers, 'Content-Length': bytes.length }).end();
  const range = rangeOf(request.headers.range, bytes.length);
  let start = range?.start ?? 0;
  let part = bytes.subarray(start, range?.end);
  if (fault === 'wrong range') {
    start = 0;
    part = bytes.subarray(0, part.length);
  }
  if (fault === 'wrong bytes') part = damaged(part);
  if (range) headers['Content-Range'] = `bytes ${start}-${start + part.length - 1}/${bytes.length}`;
  response.writeHead(range ? 206 : 200, { ...headers, 'Content-Length': part.length });
  if (fault === 'cut body') response.write(part.subarray(0, part.length / 2), () => response.destroy());
  else if (fault === 'end body') {
    response.write(part.subarray(0, part.length / 2), () => response.socket?.end());
  } else if (fault === 'stall body') response.write(part.subarray(0, part.length / 2));
  else response.end(part);
}

/** The first byte of a range, and the one after its last; undefined for the whole object. */
function rangeOf(header: string | undefined, size: number): { start: number; end: number } | undefined {
  const [, first, last] = /^bytes=(\d*)-(\d*)$/.exec(header ?? '') ?? [];
  if (first === undefined || (first === '' && last === '')) return undefined;
  if (first === '') return { start: Math.max(0, size - Number(last)), end: size };
  if (last !== '' && Number(last) < Number(first)) return undefined;
  if (Number(first) >= size) throw new S3Refusal(416, 'InvalidRange');
  return { start: Number(first), end: last === '' ? size : Math.min(size, Number(last) + 1) };
}

function list({ objects, pageSize }: FakeS3, query: URLSearchParams): string {
  const after = query.get('continuation-token') ?? '';
  const size = Math.min(pageSize, Number(query.get('max-keys') ?? 1000));
  const found = [...objects]
    .filter(([key]) => key.startsWith(query.get('prefix') ?? '') && key > after)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const page = found
    .slice(0, size)
    .map(
      ([key, { bytes, modified, etag }]) =>
        `<Contents><Key>${escaped(key)}</Key><Size>${bytes.length}</Size><ETag>${escaped(etag)}</ETag><LastModified>${modified.toISOString()}</LastModified></Contents>`,
    );
  const isLast = found.length <= size;
  const next = isLast ? '' : `<NextContinuationToken>${escaped(found[size - 1]![0])}</NextContinuationToken>`;
  return `<ListBucketResult><IsTruncated>${String(!isLast)}</IsTruncated>${next}${page.join('')}</ListBucketResult>`;
}

/** In the order of the keys; uploads of one key in the order of their beginning. */
function listUploads({ uploads, pageSize }: FakeS3, query: URLSearchParams): string {
  const all = [...uploads]
    .filter(([, { key }]) => key.startsWith(query.get('prefix') ?? ''))
    .sort(([, a], [, b]) => (a.key === b.key ? a.initiated.getTime() - b.initiated.getTime() : a.key < b.key ? -1 : 1));
  const [key, id] = [query.get('key-marker') ?? '', query.get('upload-id-marker') ?? ''];
  const marker = all.findIndex(([each]) => each === id);
  const after = id === '' ? all.filter((each) => each[1].key > key) : all.slice(marker + 1);
  const page = after.slice(0, pageSize);
  const items = page.map(
    ([each, upload]) =>
      `<Upload><Key>${escaped(upload.key)}</Key><UploadId>${each}</UploadId><Initiated>${upload.initiated.toISOString()}</Initiated></Upload>`,
  );
  const isLast = page.length === after.length;
  const [lastId, last] = page.at(-1) ?? [];
  const next = isLast
    ? ''
    : `<NextKeyMarker>${escaped(last!.key)}</NextKeyMarker><NextUploadIdMarker>${lastId}</NextUploadIdMarker>`;
  return `<ListMultipartUploadsResult><IsTruncated>${String(!isLast)}</IsTruncated>${next}${items.join('')}</ListMultipartUploadsResult>`;
}

function answer(response: ServerResponse, text: string): void {
  response.writeHead(200, { 'Content-Type': 'application/xml' }).end(text);
}

function md5(bytes: Buffer): string {
  return createHash('md5').update(bytes).digest('hex');
}

function escaped(text: string): string {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;').replaceAll('"', '&quot;');
}
