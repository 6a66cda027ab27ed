import test from 'ava';
import { failureView } from '../../src/console/framework/failure.ts';
import { confirmForm, fieldErrors, fieldOf, Form, trimmedField, fieldWords } from '../../src/console/framework/form.ts';
import { lengthText, lines } from '../../src/console/framework/format.ts';
import { html, type Html } from '../../src/console/framework/html.ts';
import { choice, pageLinks, tabLinks, withValues } from '../../src/console/framework/links.ts';
import {
  beingCounted,
  countLine,
  emptyText,
  filterForm,
  furtherPages,
  refusalOf,
  totalLine,
} from '../../src/console/framework/list.ts';
import { firstOf } from '../../src/console/framework/selection.ts';
import { requireShownAccount, withShownAccount } from '../../src/console/framework/shown-account.ts';
import { facts, selectBox, table } from '../../src/console/framework/table.ts';
import { localPath } from '../../src/console/pages/account/sign-in.ts';
import { bundleContent, runState, signerOf } from '../../src/console/pages/mirror/bundle-parts.ts';
import { external, installLines, notesSection } from '../../src/console/pages/packages/package-version.ts';
import { DomainError } from '../../src/runtime/errors.ts';
import { callOf } from './views.ts';

// The parts of pages, each with and without what it can leave out.

/** The text of a part, with one space for all space, and none beside tags. */
const text = (part: Html | string | undefined) =>
  part === undefined || typeof part === 'string'
    ? part
    : part.text
        .replaceAll(/\s+/g, ' ')
        .replaceAll(/ ?(<|>|\/>) ?/g, '$1')
        .trim();

const denied = (detail: object) => new DomainError('Denied', 'no', { detail: { explain: detail } });

const pagesNav = (links: string) => `<nav class="pages" aria-label="Pages">${links}</nav>`;

const choiceOf = (all: string, a: string) =>
  `<div><label for="k">Kind</label><select id="k" name="k"><option value=""${all}>All</option><option value="a"${a}>A</option></select></div>`;

const hiddenInput = (name: string, value: string) => `<input type="hidden" name="${name}" value="${value}"/>`;

const emptyOf = (query: Record<string, string>, next?: string | null) =>
  text(emptyText({ path: '/p', kept: { show: 's' }, query }, 'None.', next) as Html);

const totalText = (value: Parameters<typeof totalLine>[0]) => text(totalLine(value, 'name', 'names', 'Wait.'));

const countText = (value: Parameters<typeof countLine>[0]) => text(countLine(value, 'token', 'tokens'));

const countingText = (query: Record<string, string>) => text(beingCounted({ path: '/p', query }, 'images'));

const headOf = (content: string, marks = '') => `<th scope="col" role="columnheader"${marks}>${content}</th>`;

const heads = (sort: string | undefined, isForm = false) => {
  const list = {
    path: '/p',
    kept: { show: 's' },
    query: { q: 'x', cursor: 'c', ...(sort !== undefined && { sort }) },
    isForm,
  };
  const columns = [
    { name: 'N', sort: '' },
    { number: 'S', sort: 'size' },
    { text: 'T', sort: 'new', reverse: 'old' },
    { text: 'X' },
  ];
  const found = table(columns, [], { list }).text.matchAll(
    /<th[^>]*?(?:aria-sort="(\w+)"[^>]*)?>(?:<a href="([^"]*)">|<button name="sort" value="(\w*)">)?\w/g,
  );
  return [...found].map(([, order, link, button]) => [link?.replaceAll('&amp;', '&') ?? button, order]);
};

const orderTo = (sort: string) => `/p?show=s&q=x${sort && `&sort=${sort}`}`;

const inAccount = (body: Html, query = '') => text(withShownAccount(body, 'a b', query));

test('a field that was not sent is empty, and the words of a field are separated by space or commas', (t) => {
  const form = new URLSearchParams({ name: ' a, b\n\tc ', empty: '' });
  t.deepEqual([fieldOf(form, 'name'), fieldOf(form, 'empty'), fieldOf(form, 'none')], [' a, b\n\tc ', '', '']);
  t.deepEqual([trimmedField(form, 'name'), trimmedField(form, 'none')], ['a, b\n\tc', '']);
  t.deepEqual([fieldWords(form, 'name'), fieldWords(form, 'none')], [['a', 'b', 'c'], []]);
});

test('the errors of a form are by field, the first of each; others are thrown again', (t) => {
  const errors = [
    { field: 'a.0', message: 'first' },
    { field: 'a', message: 'second' },
    { field: 'b', message: 'third' },
  ];
  t.deepEqual(fieldErrors(new DomainError('Invalid', 'wrong', { detail: { errors } })), { a: 'first', b: 'third' });
  t.deepEqual(fieldErrors(new DomainError('Invalid', 'wrong')), { form: 'wrong' });
  t.deepEqual(fieldErrors(new DomainError('Invalid', 'wrong', { detail: { errors } }), ['Invalid']), { form: 'wrong' });
  t.deepEqual(fieldErrors(new DomainError('AlreadyExists', 'is there'), ['Denied', 'AlreadyExists']), {
    form: 'is there',
  });
  t.throws(() => fieldErrors(new DomainError('AlreadyExists', 'is there'), ['Denied']), { name: 'AlreadyExists' });
  t.throws(() => fieldErrors(Object.assign(new Error('other'), { name: 'AlreadyExists' }), ['AlreadyExists']), {
    message: 'other',
  });
});

test('a form shows what was sent, with each error beside its field', (t) => {
  const form = new Form({ a: '<1>', b: 'two', c: '3', d: 'y' }, { a: 'no & never', z: 'of z' });
  const error = '<p class="field-error" id="a-error" role="alert">no &amp; never</p>';
  const marks = 'aria-invalid="true" aria-describedby="a-error"';
  t.is(
    text(form.input('a', 'A', { attributes: html`required`, hint: 'help' })),
    `<label for="a">A</label><input id="a" name="a" ${marks} required value="&lt;1&gt;"/>${error}<p class="hint">help</p>`,
  );
  t.is(text(form.input('b', 'B')), '<label for="b">B</label><input id="b" name="b" value="two"/>');
  t.is(
    text(form.area('b', 'B', { attributes: html`rows="2"` })),
    '<label for="b">B</label><textarea id="b" name="b" rows="2">two</textarea>',
  );
  t.is(text(form.file('f', 'F')), '<label for="f">F</label><input id="f" name="f" type="file" required/>');
  t.is(
    text(form.file('a', 'F', { attributes: html`multiple` }, false)),
    `<label for="a">F</label><input id="a" name="a" ${marks} type="file" multiple/>${error}`,
  );
  const options = [
    [3, 'three'],
    ['4', 'four', 'is more'],
  ] as const;
  t.is(
    text(form.select('c', 'C', options, { errorOf: 'z' })),
    '<label for="c">C</label><select id="c" name="c" aria-invalid="true" aria-describedby="z-error">' +
      '<option value="3" selected>three</option><option value="4">four</option></select>' +
      '<p class="field-error" id="z-error" role="alert">of z</p>',
  );
  t.is(
    text(form.choices('Which', 'c', options, { errorOf: 'a', type: 'radio' })),
    '<fieldset><legend>Which</legend>' +
      '<label class="choice"><input type="radio" name="c" value="3" checked/>three</label>' +
      '<label class="choice"><input type="radio" name="c" value="4"/>four<span class="quiet">is more</span></label>' +
      `${error}</fieldset>`,
  );
  t.is(
    text(form.choice('d', ['y', 'yes'])),
    '<label class="choice"><input type="checkbox" name="d" value="y" checked/>yes</label>',
  );
  t.is(text(form.choices('Which', 'c', [])), '<fieldset><legend>Which</legend></fieldset>');
  t.deepEqual(form.view('T', html`b`, '/v1/x'), { title: 'T', body: html`b`, status: 422, json: '/v1/x' });
  t.deepEqual(new Form().view('T', html`b`), { title: 'T', body: html`b`, status: 200 });
});

test('the form of a confirmation has what it hides, and an address if it is sent to another page', (t) => {
  const end = '<button class="danger">End</button><a href="/back">Keep</a></form>';
  t.is(text(confirmForm('End', 'Keep', '/back')), `<form method="post" class="panel narrow">${end}`);
  t.is(
    text(confirmForm('End', 'Keep', '/back', [['id', '1']], '/to')),
    `<form method="post" action="/to" class="panel narrow"><input type="hidden" name="id" value="1"/>${end}`,
  );
});

test('a page of an error says where to go on, by its kind and by what the visitor may do', (t) => {
  const view = (error: DomainError | undefined, mayExplain?: boolean) => {
    const { title, body, status } = failureView(error, 'R1', mayExplain);
    const links = [...body.text.matchAll(/<a href="([^"]*)">/g)].map(([, address]) => address!);
    t.is(links.pop(), '/console/');
    return [status, title, links.join(' '), /role="alert">([^<]*)/.exec(body.text)![1]];
  };
  const explain = { kind: 'package', name: 'a b', reference: '1.0' };
  t.deepEqual(view(undefined), [
    500,
    'The server failed',
    '',
    'The server failed because of a bug. Its log has the details.',
  ]);
  t.deepEqual(view(new DomainError('NotFound', 'gone')), [404, 'Not found', '/console/search', 'gone']);
  t.deepEqual(view(new DomainError('Unauthorized', 'who')), [401, 'Sign in', '', 'who']);
  t.deepEqual(view(new DomainError('DatabaseUnavailable', 'slow')), [503, 'Not available now', '', 'slow']);
  t.deepEqual(view(new DomainError('Invalid', 'wrong')), [400, 'This does not work', '', 'wrong']);
  t.deepEqual(view(denied(explain)), [403, 'Not allowed', '/console/packages/a%20b', 'no']);
  t.deepEqual(
    view(denied(explain), true)[2],
    '/console/explain?kind=package&amp;name=a+b&amp;reference=1.0 /console/packages/a%20b',
  );
  t.is(view(denied({ ...explain, kind: 'container' }))[2], '/console/images/a%20b');
  t.is(view(denied({ kind: 'package', name: 'a' }), true)[2], '/console/explain?kind=package&amp;name=a');
  t.regex(failureView(undefined, 'R1').body.text, /Request [^]*data-copy="R1"/);
});

test('links to further pages keep the filters, and lead to the first page only from a later one', (t) => {
  const next = '<a href="/p?q=x&amp;cursor=n" rel="next">Next page</a>';
  t.is(pageLinks('/p', { q: 'x' }, null), undefined);
  t.is(pageLinks('/p', { q: 'x' }, null, '/end'), undefined);
  t.is(text(pageLinks('/p', { q: 'x' }, 'n')), pagesNav(next));
  t.is(text(pageLinks('/p', { q: 'x', cursor: 'c' }, null)), pagesNav('<a href="/p?q=x">First page</a>'));
  t.is(
    text(pageLinks('/p', { q: 'x', cursor: 'c' }, 'n', '/end')),
    pagesNav(`<a href="/p?q=x">First page</a>${next}<a href="/end">From the end</a>`),
  );
  const list = { path: '/p', kept: { show: 's' }, query: { q: 'x', sort: 'old', cursor: 'c' }, reverse: 'new' };
  t.is(
    text(furtherPages(list, null)),
    pagesNav(
      '<a href="/p?show=s&amp;q=x&amp;sort=old">First page</a><a href="/p?show=s&amp;q=x&amp;sort=new">From the end</a>',
    ),
  );
  t.notRegex(text(furtherPages({ ...list, reverse: undefined }, 'n'))!, /From the end/);
  t.is(
    text(tabLinks('/p', { '': 'One', two: 'Two' }, 'two')),
    '<nav class="pages" aria-label="Parts of this page"><a href="/p">One</a><a href="/p?show=two" aria-current="page">Two</a></nav>',
  );
  t.deepEqual(
    [withValues('/p', 'id', []), withValues('/p', 'id', ['a', 'b&']), withValues('/p?x=1', 'id', new Set(['a']))],
    ['/p', '/p?id=a&id=b%26', '/p?x=1&id=a'],
  );
});

test('a filter keeps the order and what the page keeps, and shows what was chosen', (t) => {
  const options = { '': 'All', a: 'A' };
  const chosen = (value: string | undefined) => text(choice('k', 'Kind', options, value));
  t.is(chosen(undefined), choiceOf(' selected', ''));
  t.is(chosen('a'), choiceOf('', ' selected'));
  t.is(chosen('b'), choiceOf('', ''));
  t.is(
    text(
      filterForm({ path: '/p', kept: { show: 's' }, query: { q: 'x', sort: 'old', cursor: 'c' } }, 'fields', 'more'),
    ),
    `<form class="filter" method="get" action="/p">${hiddenInput('show', 's')}${hiddenInput('sort', 'old')}fields<button>Filter</button>more</form>`,
  );
});

test('an empty list says whether a filter is the cause, and how to clear it', (t) => {
  t.is(emptyOf({}), 'None.');
  t.is(emptyOf({ sort: 'old', cursor: 'c', q: '' }, null), 'None.');
  t.is(emptyOf({ q: 'x' }, 'n'), 'Nothing on this page.');
  t.is(
    emptyOf({ q: 'x', r: '', sort: 'old' }),
    'Nothing matches.<a href="/p?show=s&amp;sort=old">Clear the filter</a>',
  );
});

test('what a list has in all is told, or why it is not', (t) => {
  t.is(totalText(undefined), undefined);
  t.is(totalText({ count: 0, size_bytes: 0 }), undefined);
  t.is(totalText(null), '<p class="quiet" data-refresh="3000">Wait.</p>');
  t.is(
    totalText({ count: 2, size_bytes: 1500 }),
    '<p class="quiet">2 names,<span class="exact" title="1,500 bytes">1.5 kB</span></p>',
  );
  t.is(countText(undefined), undefined);
  t.is(countText({ count: 0 }), undefined);
  t.is(countText(null), '<p class="quiet">Not counted, because that would take too long.</p>');
  t.is(countText({ count: 1 }), '<p class="quiet">1 token</p>');
  t.is(
    countText({ count: 2, size_bytes: 0 }),
    '<p class="quiet">2 tokens,<span class="exact" title="0 bytes">0 B</span></p>',
  );
  t.is(countingText({}), 'Mirrored images are being counted.<a href="/p">Look again</a>');
  for (const name of ['sort', 'q'])
    t.is(
      countingText({ [name]: 'x' }),
      `Mirrored images are being counted, and are not in this list yet.<a href="/p?${name}=x">Look again</a>`,
    );
  const refused = new DomainError('Invalid', 'no such', { detail: { parameter: 'since' } });
  t.is(refusalOf(refused, 'since'), 'no such');
  t.throws(() => refusalOf(refused, 'until'), { message: 'no such' });
  t.throws(() => refusalOf(new DomainError('Invalid', 'other'), 'since'), { message: 'other' });
});

test('a table has a cell for each column that is shown, and says what an empty one means', (t) => {
  const columns = ['A', { text: 'B' }, { name: 'C' }, { number: 'D' }, { unseen: 'E' }] as const;
  t.is(
    text(table([...columns, false], [['1', '2', '3', '4', '5', '6']])),
    '<div class="table"><table role="table"><thead role="rowgroup"><tr role="row">' +
      headOf('A') +
      headOf('B') +
      headOf('C') +
      headOf('D', ' class="number"') +
      headOf('<span class="unseen">E</span>') +
      '</tr></thead><tbody role="rowgroup"><tr role="row"><td role="cell" data-label="A">1</td>' +
      '<td role="cell" data-label="B">2</td><th scope="row" role="rowheader">3</th>' +
      '<td role="cell" class="number" data-label="D">4</td><td role="cell">5</td></tr></tbody></table></div>',
  );
  t.is(text(table(['A'], [], { empty: 'None.' })), '<p class="empty">None.</p>');
  t.regex(table(['A'], [['1']], { empty: 'None.' }).text, /<table/);
  t.regex(table(['A'], []).text, /<table/);
  t.regex(table(['A'], [], { label: 'All' }).text, /class="table" {2}tabindex="0" role="group" aria-label="All"/);
  t.is(
    text(facts(['A', 1], false, null, undefined, '', ['B', 'b'])),
    '<dl class="facts"><dt>A</dt><dd>1</dd><dt>B</dt><dd>b</dd></dl>',
  );
  t.is(
    text(selectBox('id', '1', 'one', true)),
    '<label class="check"><input type="checkbox" name="id" value="1" aria-label="Select one" checked/></label>',
  );
  t.notRegex(selectBox('id', '1', 'one').text, /checked/);
});

test('the head of a column leads to its order, and from it to the reverse', (t) => {
  const none = [undefined, undefined];
  t.deepEqual(heads(undefined), [
    [orderTo(''), 'ascending'],
    [orderTo('size'), undefined],
    [orderTo('new'), undefined],
    none,
  ]);
  t.deepEqual(heads('size'), [
    [orderTo(''), undefined],
    [orderTo('size'), 'descending'],
    [orderTo('new'), undefined],
    none,
  ]);
  t.deepEqual(heads('new'), [
    [orderTo(''), undefined],
    [orderTo('size'), undefined],
    [orderTo('old'), 'descending'],
    none,
  ]);
  t.deepEqual(heads('old', true), [['', undefined], ['size', undefined], ['new', 'ascending'], none]);
});

test('of many selected values the first ones are used, each once', (t) => {
  t.deepEqual(firstOf(['b', 'a', 'b'], 2), { chosen: ['b', 'a'], note: undefined });
  const { chosen, note } = firstOf(['c', 'b', 'a', 'c'], 2);
  t.deepEqual(chosen, ['c', 'b']);
  t.regex(text(note)!, /^<p class="warning" role="alert">Only the first 2 of 3 selected ones/);
});

test('all that a page sends has the account that it was shown in', (t) => {
  t.is(inAccount(html`<form method="get" action="/x"></form>`), '<form method="get" action="/x"></form>');
  t.is(
    inAccount(html`<form method="post" action="/x"></form>`),
    '<form method="post" action="/x?shown_account=a+b"></form>',
  );
  t.is(
    inAccount(html`<form class="y" method="post" action="/x?z=$1"></form>`),
    '<form class="y" method="post" action="/x?z=$1&amp;shown_account=a+b"></form>',
  );
  t.is(
    inAccount(html`<form method="post"></form>`, 'q=1&shown_account=other'),
    '<form method="post" action="?q=1&amp;shown_account=a+b"></form>',
  );
  t.is(
    inAccount(html`<button formmethod="post" formaction="/x">B</button>`),
    '<button formmethod="post" formaction="/x?shown_account=a+b">B</button>',
  );
  const principal = { accountName: 'mine' } as Parameters<typeof requireShownAccount>[1];
  t.notThrows(() => requireShownAccount({}, principal));
  t.notThrows(() => requireShownAccount({ shown_account: 'mine' }, principal));
  t.throws(() => requireShownAccount({ shown_account: 'other' }, principal), {
    name: 'Denied',
    message: /account mine now/,
  });
});

test('after a sign-in only a page of the console is opened', (t) => {
  const kept = ['/console/', '/console/packages?q=a#b', `/console/${'a'.repeat(1991)}`];
  t.deepEqual(kept.map(localPath), ['/console/', '/console/packages?q=a', kept[2]]);
  for (const other of [
    undefined,
    '',
    '/',
    '/v1/x',
    'https://console.invalid/console/',
    'https://evil.test/console/',
    '/console',
    '/console//evil.test',
    '/console/../v1',
    '/console/a b',
    '/console/ä',
    'x/console/a',
    `/console/${'a'.repeat(1992)}`,
  ])
    t.is(localPath(other), '/console/', other);
});

test('a length of time is in days at most, and lines are copied as they are', (t) => {
  t.deepEqual([1, 30, 90, 3600, 5400, 86_400, 40 * 86_400].map(lengthText), [
    '1 second',
    '30 seconds',
    '1.5 minutes',
    '1 hour',
    '1.5 hours',
    '1 day',
    '40 days',
  ]);
  t.is(
    lines('a\n<b>', 'both').text.replaceAll(/\n +/g, ''),
    '<div class="lines"><pre tabindex="0" aria-label="both"><code>a\n&lt;b&gt;</code></pre>' +
      '<button type="button" class="copy" data-copy="a\n&lt;b&gt;" hidden>Copy<span class="unseen"> both</span></button></div>',
  );
});

test('the lines that install a version are those of its type, with credentials for who has some', (t) => {
  const { call } = callOf();
  const installed = (types: string[], kind = 'token') =>
    installLines(
      { id: 'Lib', version: '1.0', package_types: types } as never,
      { ...call, principal: { ...call.principal, kind } } as never,
    ).text;
  const reference = '&lt;PackageReference Include=&quot;Lib&quot; Version=&quot;1.0&quot; /&gt;';
  for (const [types, line, isLibrary] of [
    [['Dependency'], 'dotnet add package Lib --version 1.0', true],
    [['DotnetTool'], 'dotnet tool install Lib --version 1.0', false],
    [['Dependency', 'Template'], 'dotnet new install Lib::1.0', false],
    [['DotnetTool', 'Template'], 'dotnet tool install Lib --version 1.0', false],
  ] as const) {
    const shown = installed([...types]);
    t.true(shown.includes(line), line);
    t.is(new Set(shown.match(/dotnet (?:add|tool|new)/g)).size, 1, line);
    t.deepEqual([shown.includes(reference), shown.includes('/v3/symbols')], [isLibrary, isLibrary], line);
    t.true(shown.includes('https://feed.test/v3/index.json'));
  }
  t.true(installed([]).includes('https://feed.test/v3/symbols'));
  t.deepEqual(
    ['token', 'person', 'anonymous'].map((kind) => installed([], kind).includes('%NUGET_TOKEN%')),
    [true, true, false],
  );
});

test('an address of another site is a link only if it is one of the web', (t) => {
  const link = '<a href="https://a.test/?b&amp;c" rel="nofollow noopener">&lt;x&gt;</a>';
  t.is(text(external('https://a.test/?b&c', '<x>')), link);
  for (const address of [null, 'javascript:alert(1)', 'x']) t.is(external(address, '<x>'), '<x>', String(address));
  t.false(notesSection({ release_notes: null } as never));
  t.is(
    text(notesSection({ release_notes: '<b>' } as never) as Html),
    '<section><h2>Release notes</h2><p class="notes">&lt;b&gt;</p></section>',
  );
});

const some = (count: number) => ({ count, size_bytes: count * 1000 });

test('a bundle has what is in it, and the key that signed it with whether it is trusted', (t) => {
  const content = (...counts: number[]) => {
    const [packages, manifests, layers, documents] = counts.map(some);
    return text(bundleContent({ packages, manifests, layers, documents } as never));
  };
  t.is(content(0, 0, 0, 0), 'nothing');
  t.is(content(1, 0, 2, 0), '1 package (1.0 kB), 2 layers (2.0 kB)');
  t.is(content(2, 1, 1, 1), '2 packages (2.0 kB), 1 manifest (1.0 kB), 1 layer (1.0 kB), 1 document (1.0 kB)');
  t.is(content(0, 2, 0, 2), '2 manifests (2.0 kB), 2 documents (2.0 kB)');
  t.is(text(signerOf(null)), '<span class="state warn">not signed</span>');
  const id = '0123456789abcdef0123';
  const [trusted, unknown] = [signerOf({ id, name: 'main' }), signerOf({ id, name: null })];
  t.regex(trusted.text, /^main .*0123456789abcdef</s);
  t.notRegex(trusted.text, /not trusted/);
  t.regex(unknown.text, /^ .*0123456789abcdef<.*<span class="quiet">not trusted here<\/span>$/s);
  for (const each of [trusted, unknown]) t.true(each.text.includes(id), 'the whole ID can be copied');
  t.is(text(runState({ state: 'failed', error: 'why' } as never)), '<span class="state bad">failed</span>why');
  t.is(text(runState({ state: 'done', error: null } as never)), '<span class="state good">done</span>');
});
