import { parentPort } from 'node:worker_threads';
import MarkdownIt from 'markdown-it';
import sanitize, { type Tag } from 'sanitize-html';
import { webAddress } from './html.ts';

// Renders one README, in a thread of its own: hostile Markdown can take seconds. It asks for the text when it is ready.

const markdown = new MarkdownIt('default', { html: false, linkify: false, typographer: false });
// Images of other sites would tell them who reads the page, so only their texts are shown.
markdown.renderer.rules['image'] = (tokens, index) => markdown.utils.escapeHtml(tokens[index]!.content);

/** Boxes of task lists, as GitHub writes them. */
markdown.core.ruler.after('inline', 'tasks', ({ tokens }) => {
  for (const [index, { type, children }] of tokens.entries()) {
    const [first] = type === 'inline' && tokens[index - 2]?.type === 'list_item_open' ? (children ?? []) : [];
    if (first) first.content = first.content.replace(/^\[[ xX]\] /, (box) => (box === '[ ] ' ? '☐ ' : '☑ '));
  }
});

const text = 'h3 h4 h5 h6 p ul ol li blockquote code pre em strong s hr br a'.split(' ');
const tables = 'table thead tbody tr th td'.split(' ');

/** The page has one `h1`, and its parts have `h2`. */
const headings = { h1: 'h3', h2: 'h4', h3: 'h5', h4: 'h6', h5: 'h6', h6: 'h6' };

const options = {
  allowedTags: [...text, ...tables],
  allowedAttributes: { a: ['href', 'rel'], pre: ['tabindex'], table: ['tabindex'] },
  allowedSchemes: ['http', 'https'],
  transformTags: {
    ...headings,
    // With the focus, keys scroll them sideways.
    pre: (tagName): Tag => ({ tagName, attribs: { tabindex: '0' } }),
    table: (tagName): Tag => ({ tagName, attribs: { tabindex: '0' } }),
    a: (_name, { href }): Tag => {
      const address = webAddress(href);
      // An address that is not absolute belongs to the repository of the package. `nofollow`: the page does not vouch.
      return address === undefined
        ? { tagName: 'removed', attribs: {} }
        : { tagName: 'a', attribs: { href: address, rel: 'nofollow noopener' } };
    },
  },
} satisfies sanitize.IOptions;

/* The rule is about windows: a port has no origin. */
/* oxlint-disable unicorn/require-post-message-target-origin */
parentPort!.once('message', (readme: string) => parentPort!.postMessage(sanitize(markdown.render(readme), options)));
parentPort!.postMessage('ready');
