import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { ExecutionContext } from 'ava';
import { hexOf, type Digest } from '../../src/runtime/digest.ts';
import type { BucketOptions } from '../../src/storage/drivers/s3/bucket.ts';
import { checkBody } from './s3/checksums.ts';
import { checkRequest, damaged, perform } from './s3/operations.ts';
import { S3Refusal } from './s3/refusal.ts';
import { checkSignature, type Keys } from './s3/signature.ts';

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
  /** Receives another byte than was sent. */
  | 'damage upload'
  /** Stores half of the body and answers 200. */
  | 'store half'
  /** Stores another byte and answers 200, with the checksum of what it stored. */
  | 'store wrong bytes'
  /** Answers a part without its ETag. */
  | 'no tag'
  /** Sends half of the body, then destroys the socket. */
  | 'cut body'
  /** The same, but ends the connection in the regular way. */
  | 'end body'
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

/** An object. */
export interface Stored {
  bytes: Buffer;
  modified: Date;
  etag: string;
}

/** A part of an object, and its MD5. */
export interface UploadedPart {
  bytes: Buffer;
  tag: string;
}

interface Upload {
  key: string;
  initiated: Date;
  parts: Map<number, UploadedPart>;
}

/**
 * A small S3 server with the objects of one bucket in memory, for faults. It refuses what a real one refuses: it passes
 * `test/storage/drivers/s3/s3-suite.ts`, as Swift does. It answers 501 to what it does not know.
 */
export interface FakeS3 extends Keys {
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
    region: 'us-east-1',
    secrets: new Map([['key', 'secret']]),
    now: Date.now,
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
      if (fault === 'reset') {
        socket.destroy();
        return;
      }
      if (typeof fault === 'object' && 'after' in fault) await fault.after;
      else if (typeof fault === 'object') throw new S3Refusal(fault.status, fault.code);
      checkRequest(known, request);
      const signed = checkSignature(request, url, s3);
      bodies += 1;
      s3.mostBodies = Math.max(s3.mostBodies, method === 'PUT' ? bodies : 0);
      const body = await receive(known, request, fault).finally(() => (bodies -= 1));
      if (body === undefined) {
        socket.destroy();
        return;
      }
      checkBody(request.headers, signed, body);
      if (bucket !== s3.bucket) throw new S3Refusal(404, 'NoSuchBucket');
      const to = fault === 'lose answer' ? lostAnswer(request) : response;
      perform(s3, { ...known, request, body, response: to, fault });
    };
    respond().catch((error: unknown) => {
      if (error instanceof S3Refusal) {
        request.resume();
        refuse(response, error, method);
      } else socket.destroy();
    });
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
export function s3Access({
  endpoint,
  bucket,
  region,
}: FakeS3): BucketOptions & { accessKeyId: string; secretAccessKey: string } {
  const keys = { accessKeyId: 'key', secretAccessKey: 'secret' };
  return { endpoint, bucket, region, forcePathStyle: true, ...keys };
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
  const body = Buffer.concat(pieces);
  return fault === 'damage upload' ? damaged(body) : body;
}

function refuse(response: ServerResponse, { status, code }: S3Refusal, method: string): void {
  const body = method === 'HEAD' ? '' : `<Error><Code>${code}</Code><Message>${code}</Message></Error>`;
  response.writeHead(status, { 'Content-Type': 'application/xml' }).end(body);
}
