import { z } from 'zod';
import { duration, limit, sizeSetting, timerTime, whole } from './units.ts';

/** A minute of 10 million requests is more than a process can answer. */
const perMinute = limit(10_000_000);

/** The settings `limits`: sizes, numbers and times that bound what a client may use. */
export const limits = z
  .strictObject({
    nupkg: sizeSetting.prefault('512MiB').describe('Largest package that can be pushed'),
    manifest: sizeSetting.prefault('4MiB').describe('Largest image manifest'),
    blob: sizeSetting.optional().describe('Largest image blob; unlimited by default'),
    accountStorage: sizeSetting.optional().describe('Bytes that an account may host; unlimited by default'),
    accountEgress: sizeSetting
      .optional()
      .describe('Bytes that an account may download in a month before its pushes are refused; unlimited by default'),
    accountFetches: whole(1, 10_000)
      .default(128)
      .describe(
        'Concurrent upstream fetches per account, at most about half of them from one upstream; further requests wait up to 1 minute, then fail with 429',
      ),
    uploadIdle: timerTime(1, 24).prefault('60s').describe('Close a request that transfers no bytes for this long'),
    uploadAge: duration.prefault('24h').describe('Delete an upload session that is idle for this long'),
    uploadRate: sizeSetting
      .prefault('1KiB')
      .describe(
        'Close a request whose body is slower than this many bytes a second for twice `uploadIdle`; 0 never does',
      ),
    uploads: limit(1_000_000)
      .prefault(256)
      .describe('Concurrent uploads of a token at each instance, or `off`; further ones wait, then get 429'),
    delay: duration
      .pipe(z.number().max(60_000, 'expected 1m or less'))
      .prefault('5s')
      .describe('How long a request above a limit waits before it is refused with 429'),
    requestsPerMinute: perMinute.prefault('off').describe('Requests a minute of a token at each instance, or `off`'),
    anonymousRequestsPerMinute: perMinute
      .prefault(60_000)
      .describe('Requests a minute without a token of an address at each instance, or `off`'),
    missesPerMinute: perMinute
      .prefault(6000)
      .describe('Upstream fetches a minute that a token, or an address without one, may start, or `off`'),
    searchesPerMinute: perMinute
      .prefault(600)
      .describe('Searches a minute of a token, or of an address without one, or `off`'),
    pushesPerMinute: perMinute
      .prefault(3000)
      .describe('Packages, symbols, blobs and manifests a minute that a token may push, or `off`'),
    failedSignInsPerMinute: perMinute
      .prefault(60)
      .describe('Failed sign-ins a minute of an address, or `off`; a valid token is never refused for them'),
    connectionsPerAddress: limit(1_000_000)
      .prefault(4096)
      .describe('Open connections of an address that is not a trusted proxy, or `off`; further ones are closed'),
    headerTimeout: duration
      .pipe(z.number().min(100, 'expected 100ms or more').max(600_000, 'expected 10m or less'))
      .prefault('30s')
      .describe('Close a connection whose request line and headers take longer than this'),
    headerSize: sizeSetting
      .pipe(
        z
          .number()
          .min(4096, 'expected 4KiB or more')
          .max(2 ** 20, 'expected 1MiB or less'),
      )
      .prefault('16KiB')
      .describe('Largest request line and headers together; larger ones get 431'),
  })
  .prefault({});
