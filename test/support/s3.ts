import { createHash, randomUUID } from 'node:crypto';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ExecutionContext } from 'ava';
import { hexOf, type Digest } from '../../src/digest.ts';
import type { BucketOptions } from '../../src/storage/s3/bucket.ts';

/** A request that the server received. */
export interface S3Request {
  /** Such as `PUT blobs/sha256/ab/ab12…`, without the query. */
  text: string;
  method: string;
  key: string;
  query: URLSearchParams;
  range: string | undefined;
  /** Bytes of its body so far. */
  received: number;
  /** Undefined for a request without a signature. */
  accessKeyId: string | undefined;
}

/** How the server misbehaves. A number is a status; `reset` destroys the socket at once. */
export type S3Fault =
  | { code: string; status: number }
  /** Performs the request after this. */
  | { after: Promise<unknown> }
  | 'reset'
  /** Reads half of the body, then destroys the socket. */
  | 'cut upload'
  /** Stores half of the body and answers 200. */
  | 'store half'
  /** Sends half of the body, then destroys the socket. */
  | 'cut body'
  /** Sends half of the body, then nothing. */
  | 'stall body'
  /** Changes a byte. */
  | 'wrong bytes'
  /** Answers with the first bytes, whatever the range is. */
  | 'wrong range'
  /** Performs the request, then destroys the socket. */
  | 'lose answer'
  /** Never answers. */
  | 'silent';

interface Stored {
  bytes: Buffer;
  modified: Date;
  etag: string;
}

interface Upload {
  key: string;
  initiated: Date;
  parts: Map<number, Buffer>;
}

/** A small S3 server with the objects of one bucket in memory, for faults. It does not check signatures. */
export interface FakeS3 {
  endpoint: string;
  bucket: string;
  objects: Map<string, Stored>;
  uploads: Map<string, Upload>;
  requests: S3Request[];
  /** Most requests with a body that were being received at the same time. */
  mostBodies: number;
  /** Chooses the fault of a request. */
  fault: (request: S3Request) => S3Fault | undefined;
  /** Entries of a page of a list. */
  pageSize: number;
}

export async function startS3(t: Pick<ExecutionContext, 'teardown'>): Promise<FakeS3> {
  const s3: FakeS3 = {
    endpoint: '',
    bucket: 'artifacts',
    objects: new Map(),
    uploads: new Map(),
    requests: [],
    mostBodies: 0,
    fault: () => undefined,
    pageSize: 250,
  };
  let bodies = 0;
  const server = createServer((request, response) => {
    // The request loses its socket when it is closed.
    const { socket } = request;
    const url = new URL(request.url!, 'http://s3');
    const [, bucket, ...rest] = decodeURIComponent(url.pathname).split('/');
    const key = rest.join('/');
    const accessKeyId = /Credential=([^/]+)/.exec(request.headers.authorization ?? '')?.[1];
    const method = request.method!;
    const { range } = request.headers;
    const known = { text: `${method} ${key}`, method, key, query: url.searchParams, range, received: 0, accessKeyId };
    s3.requests.push(known);
    const fault = s3.fault(known);
    const respond = async () => {
      if (fault === 'silent') return;
      if (fault === 'reset') return void socket.destroy();
      if (typeof fault === 'object' && 'after' in fault) await fault.after;
      else if (typeof fault === 'object') {
        request.resume();
        return refuse(response, fault.status, fault.code, method);
      }
      bodies += 1;
      s3.mostBodies = Math.max(s3.mostBodies, method === 'PUT' ? bodies : 0);
      const body = await receive(known, request, fault).finally(() => (bodies -= 1));
      if (body === undefined) return void socket.destroy();
      if (bucket !== s3.bucket) return refuse(response, 404, 'NoSuchBucket', method);
      perform(s3, known, request, body, fault === 'lose answer' ? lostAnswer(request) : response, fault);
    };
    respond().catch(() => socket.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  s3.endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  t.teardown(() => {
    server.closeAllConnections();
    server.close();
  });
  return s3;
}

/** How a driver reaches the bucket. */
export function s3Access({ endpoint, bucket }: FakeS3): BucketOptions {
  const keys = { accessKeyId: 'key', secretAccessKey: 'secret' };
  return { endpoint, bucket, region: 'us-east-1', forcePathStyle: true, ...keys };
}

/** The section `storage` of the settings of a server with its content in `s3`. */
export function s3Storage(s3: FakeS3): Record<string, unknown> {
  return { driver: 's3', s3: s3Access(s3) };
}

/** The key of a blob with SHA-256 in a bucket without a prefix. */
export function blobKey(digest: Digest): string {
  const hex = hexOf(digest);
  return `blobs/sha256/${hex.slice(0, 2)}/${hex}`;
}

/** The same as variables of the environment. */
export function s3Environment({ endpoint, bucket }: FakeS3): Record<string, string> {
  return {
    ENTREPOT_STORAGE_DRIVER: 's3',
    ENTREPOT_STORAGE_S3_ENDPOINT: endpoint,
    ENTREPOT_STORAGE_S3_BUCKET: bucket,
    ENTREPOT_STORAGE_S3_FORCE_PATH_STYLE: 'true',
    ENTREPOT_STORAGE_S3_ACCESS_KEY_ID: 'key',
    ENTREPOT_STORAGE_S3_SECRET_ACCESS_KEY: 'secret',
  };
}

function lostAnswer(request: IncomingMessage): ServerResponse {
  const { socket } = request;
  const end = () => socket.destroy();
  return { writeHead: () => ({ end }), end } as unknown as ServerResponse;
}

async function receive(
  known: S3Request,
  request: IncomingMessage,
  fault: S3Fault | undefined,
): Promise<Buffer | undefined> {
  const pieces: Buffer[] = [];
  const length = Number(request.headers['content-length'] ?? 0);
  for await (const piece of request as AsyncIterable<Buffer>) {
    pieces.push(piece);
    known.received += piece.length;
    if (fault === 'cut upload' && known.received >= length / 2) return undefined;
  }
  return Buffer.concat(pieces);
}

function perform(
  s3: FakeS3,
  { method, key, query }: S3Request,
  request: IncomingMessage,
  body: Buffer,
  response: ServerResponse,
  fault: S3Fault | undefined,
): void {
  const { objects, uploads } = s3;
  const answer = (text: string) => void response.writeHead(200, { 'Content-Type': 'application/xml' }).end(text);
  const store = (bytes: Buffer) => {
    const etag = `"${createHash('md5').update(bytes).digest('hex')}"`;
    objects.set(key, { bytes, modified: new Date(), etag });
    return etag;
  };
  const sha256 = request.headers['x-amz-content-sha256'];
  if (/^[0-9a-f]{64}$/.test(String(sha256)) && createHash('sha256').update(body).digest('hex') !== sha256)
    return refuse(response, 400, 'XAmzContentSHA256Mismatch', method);
  if (key === '' && method === 'HEAD') return void response.writeHead(200).end();
  if (key === '' && query.has('uploads')) {
    const listed = [...uploads].map(
      ([id, each]) =>
        `<Upload><Key>${each.key}</Key><UploadId>${id}</UploadId><Initiated>${each.initiated.toISOString()}</Initiated></Upload>`,
    );
    return answer(
      `<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>${listed.join('')}</ListMultipartUploadsResult>`,
    );
  }
  if (key === '') return answer(list(s3, query));
  if (method === 'POST' && query.has('uploads')) {
    const id = randomUUID();
    uploads.set(id, { key, initiated: new Date(), parts: new Map() });
    return answer(`<InitiateMultipartUploadResult><UploadId>${id}</UploadId></InitiateMultipartUploadResult>`);
  }
  const id = query.get('uploadId');
  if (id !== null) {
    const found = uploads.get(id);
    if (!found) return refuse(response, 404, 'NoSuchUpload', method);
    if (method === 'PUT') {
      found.parts.set(Number(query.get('partNumber')), body);
      return void response.writeHead(200, { ETag: `"${query.get('partNumber')}"` }).end();
    }
    uploads.delete(id);
    if (method === 'DELETE') return void response.writeHead(204).end();
    const parts = [...found.parts].sort(([a], [b]) => a - b).map(([, bytes]) => bytes);
    return answer(
      `<CompleteMultipartUploadResult><ETag>${store(Buffer.concat(parts))}</ETag></CompleteMultipartUploadResult>`,
    );
  }
  if (method === 'PUT') {
    const source = request.headers['x-amz-copy-source'];
    if (source === undefined) {
      const bytes = fault === 'store half' ? body.subarray(0, body.length / 2) : body;
      return void response.writeHead(200, { ETag: store(bytes) }).end();
    }
    const from = objects.get(String(source).split('/').slice(1).join('/'));
    if (!from) return refuse(response, 404, 'NoSuchKey', method);
    return answer(`<CopyObjectResult><ETag>${store(from.bytes)}</ETag></CopyObjectResult>`);
  }
  if (method === 'DELETE') {
    objects.delete(key);
    return void response.writeHead(204).end();
  }
  const found = objects.get(key);
  if (!found) return refuse(response, 404, 'NoSuchKey', method);
  send(found, request, response, method, fault);
}

function send(
  { bytes, etag, modified }: Stored,
  request: IncomingMessage,
  response: ServerResponse,
  method: string,
  fault: S3Fault | undefined,
): void {
  const headers: Record<string, string | number> = { ETag: etag, 'Last-Modified': modified.toUTCString() };
  if (method === 'HEAD') return void response.writeHead(200, { ...headers, 'Content-Length': bytes.length }).end();
  const [, first, last] = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? '') ?? [];
  let start = Number(first ?? 0);
  if (start >= bytes.length) return refuse(response, 416, 'InvalidRange', method);
  let part = Buffer.from(bytes.subarray(start, last ? Number(last) + 1 : bytes.length));
  if (fault === 'wrong range') {
    start = 0;
    part = Buffer.from(bytes.subarray(0, part.length));
  }
  if (fault === 'wrong bytes') part[part.length >> 1]! ^= 1;
  if (first !== undefined) headers['Content-Range'] = `bytes ${start}-${start + part.length - 1}/${bytes.length}`;
  response.writeHead(first === undefined ? 200 : 206, { ...headers, 'Content-Length': part.length });
  if (fault === 'cut body') response.write(part.subarray(0, part.length / 2), () => response.destroy());
  else if (fault === 'stall body') response.write(part.subarray(0, part.length / 2));
  else response.end(part);
}

function list({ objects, pageSize }: FakeS3, query: URLSearchParams): string {
  const after = query.get('continuation-token') ?? '';
  const found = [...objects]
    .filter(([key]) => key.startsWith(query.get('prefix') ?? '') && key > after)
    .sort(([a], [b]) => (a < b ? -1 : 1));
  const page = found
    .slice(0, pageSize)
    .map(
      ([key, { bytes, modified }]) =>
        `<Contents><Key>${key}</Key><Size>${bytes.length}</Size><LastModified>${modified.toISOString()}</LastModified></Contents>`,
    );
  const isLast = found.length <= pageSize;
  const next = isLast ? '' : `<NextContinuationToken>${found[pageSize - 1]![0]}</NextContinuationToken>`;
  return `<ListBucketResult><IsTruncated>${String(!isLast)}</IsTruncated>${next}${page.join('')}</ListBucketResult>`;
}

function refuse(response: ServerResponse, status: number, code: string, method: string): void {
  const body = method === 'HEAD' ? '' : `<Error><Code>${code}</Code><Message>${code}</Message></Error>`;
  response.writeHead(status, { 'Content-Type': 'application/xml' }).end(body);
}
