import test from 'ava';
import { printReport } from '../../src/cli/reported-run.ts';
import type { Terminal } from '../../src/cli/with-installation.ts';
import { ImportReport, type ImportLine } from '../../src/import/report.ts';

// What an import or an export prints at its end.

const words = {
  imported: ['imported', 'to import'],
  present: ['here already', 'here already'],
  updated: ['updated', 'to update'],
  conflict: ['conflicts', 'conflicts'],
  failed: ['failed', 'cannot come'],
  problems: 'did not come',
} as const;

/** What is printed of these lines, and the message of the error. */
function printed(lines: readonly Partial<ImportLine>[], changes: Partial<ImportReport> = {}, dryRun = false) {
  const report = new ImportReport();
  for (const line of lines) report.add({ name: 'Lib', reference: '1.0', outcome: 'imported', bytes: 0, ...line });
  Object.assign(report, changes);
  const heard = { stdout: '', stderr: '' };
  const terminal = {
    stdout: { write: (text: string) => (heard.stdout += text) },
    stderr: { write: (text: string) => (heard.stderr += text) },
  } as unknown as Terminal;
  try {
    printReport(report, words as never, dryRun, terminal);
    return { ...heard, error: undefined };
  } catch (error) {
    return { ...heard, error: `${(error as Error).name}: ${(error as Error).message}` };
  }
}

const none = (done: string, failed = 'failed') => `${done}: 0\nhere already: 0\nconflicts: 0\n${failed}: 0\n`;

test('each outcome that can occur has a line, and an update only if there was one', (t) => {
  t.deepEqual(printed([]), { stdout: none('imported'), stderr: '', error: undefined });
  t.deepEqual(printed([], {}, true), { stdout: none('to import', 'cannot come'), stderr: '', error: undefined });
  const { stdout } = printed([
    { bytes: 1024 },
    { bytes: 512 },
    { outcome: 'present' },
    { outcome: 'updated', bytes: 1 },
    { outcome: 'mirrored', bytes: 9, alsoAt: 'up.test' },
  ]);
  t.is(
    stdout,
    'imported: 2 (1.5 KiB)\nhere already: 1\nupdated: 1 (1 B)\nconflicts: 0\nfailed: 0\nupstreams have it, too\tLib\tup.test\n',
  );
});

test('conflicts and failures are told one by one, and the command fails', (t) => {
  const lines: Partial<ImportLine>[] = [
    { outcome: 'conflict', note: 'it differs.' },
    { outcome: 'failed', reference: '', note: 'not\u001Bread' },
    { outcome: 'failed' },
  ];
  const problems = 'conflict: Lib 1.0: it differs\nfailed: Lib: not\\u001bread\nfailed: Lib 1.0: \n';
  t.deepEqual(printed(lines, { warnings: ['a list is cut'] }), {
    stdout: 'imported: 0\nhere already: 0\nconflicts: 1\nfailed: 2\n',
    stderr: `warning: a list is cut\n${problems}`,
    error: 'Invalid: 3 did not come',
  });
  t.deepEqual(printed(lines, { stopped: 'The source is down.' }), {
    stdout: 'imported: 0\nhere already: 0\nconflicts: 1\nfailed: 2\n',
    stderr: problems,
    error: 'Aborted: stopped before the end: The source is down; run the same command again to continue',
  });
  const many = printed(Array.from({ length: 1002 }, () => ({ outcome: 'failed' as const })));
  t.true(many.stderr.endsWith('failed: Lib 1.0: \nand 2 more; --report writes all of them\n'));
  t.is(many.error, 'Invalid: 1002 did not come');
});
