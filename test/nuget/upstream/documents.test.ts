import test from 'ava';
import type { MirrorEntry } from '../../../src/mirror/mirror.ts';
import { readEntry, type DocumentReading } from '../../../src/nuget/upstream/documents.ts';
import { digestOf } from '../../support/registry.ts';

test('the content of a stored document is closed if its reading has no options', async (t) => {
  let closed = 0;
  const metadata = { digest: digestOf('{}') };
  const entry = { metadata, content: { close: () => (closed += 1) }, complete: Promise.resolve(metadata) };
  const reading: DocumentReading<string, 'short'> = {
    kind: 'short',
    options: () => Promise.reject(new Error('the upstream fails')),
    make: ([text]) => ({ value: text!, items: 1 }),
  };
  await t.throwsAsync(readEntry(entry as unknown as MirrorEntry, 100, reading, 'public'), {
    message: 'the upstream fails',
  });
  t.is(closed, 1);
});
