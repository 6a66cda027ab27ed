import test from 'ava';
import { binaryBytes, ProgressBar } from '../../src/cli/progress.ts';

test('a progress bar shows the share that is done, on one line that fits the terminal', (t) => {
  const written: string[] = [];
  const screen = { isTTY: true, columns: 60, write: (text: string) => void written.push(text) };
  const bar = new ProgressBar(screen);
  const shown = () => written.splice(0).map((text) => text.replaceAll(/\d[\d.]* [KMGT]?i?B\/s/g, 'RATE'));
  bar.show({ known: 4, ended: 1, received: 1536, waiting: 'waits for a pause of the upstream' });
  bar.show({ known: 0, ended: 0, received: 0, waiting: '' });
  bar.show({ known: 2, ended: 2, received: 0 });
  t.deepEqual(shown(), [
    `\r[######..................] 1/4  1.5 KiB  waits for a pause \u001B[K`,
    `\r[........................] 0/0  0 B  \u001B[K`,
    `\r[########################] 2/2  0 B  RATE\u001B[K`,
  ]);
  bar.bytes(512, 2048);
  bar.bytes(600, 2048);
  bar.bytes(2048, 2048);
  bar.bytes(0, 0);
  bar.clear();
  t.deepEqual(shown(), [
    `\r[######..................] 512 B of 2.0 KiB  RATE\u001B[K`,
    `\r[########################] 2.0 KiB of 2.0 KiB  RATE\u001B[K`,
    `\r[########################] 0 B of 0 B  RATE\u001B[K`,
    '\r\u001B[K',
  ]);
  const file = new ProgressBar({ ...screen, isTTY: false });
  file.show({ known: 4, ended: 1, received: 1536 });
  file.bytes(1, 2);
  file.clear();
  t.deepEqual(written, [], 'nothing without a terminal');
  t.deepEqual([0, 1023, 1024, 1536, 102_400, 2 ** 20, 5 * 2 ** 30, 3 * 2 ** 40, 3000 * 2 ** 40].map(binaryBytes), [
    '0 B',
    '1023 B',
    '1.0 KiB',
    '1.5 KiB',
    '100 KiB',
    '1.0 MiB',
    '5.0 GiB',
    '3.0 TiB',
    '3000 TiB',
  ]);
});
