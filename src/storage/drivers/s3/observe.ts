import type { S3Client } from '@aws-sdk/client-s3';
import type { S3Counts, S3Operation, S3Result } from '../counts.ts';
import { isMissing, isThrottled } from './failures.ts';

/** The commands that are sent; all others belong to an upload in parts. */
const operations: Record<string, S3Operation> = {
  PutObjectCommand: 'put',
  UploadPartCommand: 'part',
  GetObjectCommand: 'get',
  HeadObjectCommand: 'head',
  HeadBucketCommand: 'head',
  ListObjectsV2Command: 'list',
  DeleteObjectCommand: 'delete',
  CopyObjectCommand: 'copy',
};

/** Counts every request of a client, with `only` as one operation. */
export function observe(client: S3Client, counts: S3Counts, only?: S3Operation): void {
  client.middlewareStack.add((next, { commandName = '' }) => async (args) => {
    const operation = only ?? operations[commandName] ?? 'multipart';
    const startedAt = performance.now();
    let result: S3Result = 'ok';
    try {
      const answer = await next(args);
      counts.sent += (args.input as { ContentLength?: number }).ContentLength ?? 0;
      return answer;
    } catch (error) {
      const isStopped = operation === 'early' && (error as Error).name === 'AbortError';
      result = isStopped ? 'stopped' : isMissing(error) ? 'missing' : isThrottled(error) ? 'throttled' : 'failed';
      throw error;
    } finally {
      counts.count(operation, result, (performance.now() - startedAt) / 1000);
    }
  });
}
